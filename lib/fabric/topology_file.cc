// SPDX-License-Identifier: Apache-2.0
#include "fabric/topology_file.h"

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "fabric/topology.h"

namespace rove::fabric {
namespace {

struct Unit {
    std::string_view name;
    double value;
};
constexpr std::array kRates{Unit{"bps", 1}, Unit{"Kbps", 1e3}, Unit{"Mbps", 1e6}, Unit{"Gbps", 1e9},
                            Unit{"Tbps", 1e12}};
constexpr std::array kTimes{Unit{"ps", 1}, Unit{"ns", 1e3}, Unit{"us", 1e6}, Unit{"ms", 1e9}, Unit{"s", 1e12}};

// The words of a file with their line numbers.
class Words {
  public:
    Words(std::istream& file, std::string name) : file_(file), name_(std::move(name)) {}

    [[noreturn]] void fail(const std::string& what) const {
        throw std::invalid_argument(name_ + ":" + std::to_string(line_) + ": " + what);
    }

    std::string next(const char* what) {
        std::string word;
        for (int c; (c = file_.get()) != std::istream::traits_type::eof();) {
            const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
            if (blank && !word.empty()) {
                file_.unget();
                break;
            }
            line_ += c == '\n';
            if (!blank) word += static_cast<char>(c);
        }
        if (word.empty()) fail(std::string("the file ends where ") + what + " is expected");
        return word;
    }

    uint32_t number(const char* what, uint32_t least, uint32_t most) {
        const std::string word = next(what);
        uint32_t value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (error != std::errc{} || end != word.data() + word.size() || value < least || value > most) {
            fail(std::string(what) + " '" + word + "': a number from " + std::to_string(least) + " to " +
                 std::to_string(most));
        }
        return value;
    }

    // Reads a number that is not negative, followed by one of `units` if there are any.
    double quantity(const char* what, std::span<const Unit> units, double most) {
        const std::string word = next(what);
        double value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        const std::string_view unit(end, static_cast<size_t>(word.data() + word.size() - end));
        double factor = units.empty() && unit.empty() ? 1 : 0;
        for (const Unit& known : units) {
            if (known.name == unit) factor = known.value;
        }
        if (error == std::errc{} && factor != 0 && value >= 0 && value * factor <= most) return value * factor;
        std::string allowed = "a number";
        for (const Unit& known : units) allowed += (&known == units.data() ? " with " : ", ") + std::string(known.name);
        char limit[32];
        std::snprintf(limit, sizeof limit, "%g", units.empty() ? most : most / units.back().value);
        fail(std::string(what) + " '" + word + "': " + allowed + "; from 0 to " + limit +
             (units.empty() ? "" : std::string(units.back().name)));
    }

  private:
    std::istream& file_;
    const std::string name_;
    size_t line_ = 1;
};

struct ParsedLink {
    uint32_t from, to;
    LinkConfig config;
};

}  // namespace

Imported read_topology(Network& network, std::istream& file, const std::string& name, const ImportConfig& config) {
    constexpr uint32_t kMaxNodes = 1 << 20, kMaxLinks = 1 << 24;  // a bound for memory
    Words words(file, name);
    const uint32_t nodes = words.number("the number of nodes", 2, kMaxNodes);
    const uint32_t switches = words.number("the number of switches", 0, nodes);
    const uint32_t links = words.number("the number of links", 1, kMaxLinks);
    std::vector<bool> is_switch(nodes);
    for (uint32_t i = 0; i < switches; ++i) {
        const uint32_t number = words.number("a switch", 0, nodes - 1);
        if (is_switch[number]) words.fail("switch " + std::to_string(number) + " is there already");
        is_switch[number] = true;
    }
    std::vector<ParsedLink> parsed;
    std::vector<const ParsedLink*> first_link(nodes);
    parsed.reserve(links);
    for (uint32_t i = 0; i < links; ++i) {
        ParsedLink& link = parsed.emplace_back();
        link.from = words.number("a link's node", 0, nodes - 1);
        link.to = words.number("a link's node", 0, nodes - 1);
        if (link.from == link.to) words.fail("a link from node " + std::to_string(link.from) + " to itself");
        link.config.bits_per_s = static_cast<uint64_t>(std::llround(words.quantity("a link's rate", kRates, 100e12)));
        if (link.config.bits_per_s == 0) words.fail("a link's rate is 0");
        link.config.delay = static_cast<Time>(std::llround(words.quantity("a link's delay", kTimes, 100e12)));
        link.config.loss = words.quantity("a link's loss", {}, 1);
        for (const uint32_t end : {link.from, link.to}) {
            if (first_link[end] == nullptr) {
                first_link[end] = &link;
            } else if (!is_switch[end]) {
                words.fail("node " + std::to_string(end) + " is a host, and has a link already: hosts have one");
            }
        }
    }

    Imported made;
    std::vector<Node*> by_number(nodes);
    for (uint32_t i = 0; i < nodes; ++i) {
        if (is_switch[i]) {
            by_number[i] = made.switches.emplace_back(&network.add_switch(config.a_switch));
            continue;
        }
        if (first_link[i] == nullptr) words.fail("node " + std::to_string(i) + " has no link");
        by_number[i] = made.all_hosts.emplace_back(&add_host(network, config.host, first_link[i]->config));
    }
    for (const ParsedLink& link : parsed) {
        const Cable cable = network.connect(*by_number[link.from], *by_number[link.to], link.config);
        (is_switch[link.from] && is_switch[link.to] ? made.trunks : made.access).push_back(cable);
    }
    try {
        network.route();
    } catch (const std::invalid_argument&) {
        words.fail("the nodes are not all connected");
    }
    return made;
}

}  // namespace rove::fabric
