// SPDX-License-Identifier: Apache-2.0
// Two hosts that connect to each other, for tests of the result.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "network.h"

namespace rove::cm::test {

inline bool begins_with(std::span<const uint8_t> data, std::string_view text) {
    return data.size() >= text.size() && std::equal(text.begin(), text.end(), data.begin()) &&
           std::all_of(data.begin() + static_cast<std::ptrdiff_t>(text.size()), data.end(),
                       [](uint8_t b) { return b == 0; });
}
inline std::span<const uint8_t> bytes(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <class M>
bool is(const Mad& mad) {
    Message message;
    return parse(mad, message) == ParseError::kNone && std::holds_alternative<M>(message.body);
}

class CmConnect : public testing::Test {
  protected:
    Connect request(const Host& from, const Host& to) {
        Connect connect;
        connect.path = from.to(to);
        connect.service_id = kService;
        connect.addresses = CmaHeader{.src_port = 33000, .src = from.gid, .dst = to.gid};
        connect.local = {
            .qpn = ++qpn, .starting_psn = static_cast<uint32_t>(network.random.below(1 << 24)), .ca_guid = 0xC1};
        return connect;
    }
    Id connect(const Connect& connect) {
        Id id = Id::kNone;
        EXPECT_EQ(a.cm.connect(network.now, connect, &a, id), 0);
        return id;
    }
    Id connect() { return connect(request(a, b)); }
    Id listen(Host& host, const Listen& listen = {.service_id = kService}) {
        Id id = Id::kNone;
        EXPECT_EQ(host.cm.listen(listen, &host, id), 0);
        return id;
    }
    Accept accept(std::string_view text = "") {
        return {.local = {.qpn = ++qpn, .ca_guid = 0xC2}, .private_data = bytes(text)};
    }
    // Establishes a connection at both ends. Returns the id at a; the id at b is in its last request.
    Id establish() {
        const Id id = connect();
        network.run(kMs);
        EXPECT_EQ(b.cm.accept(network.now, b.last(EventKind::kConnectRequest).id, accept()), 0);
        network.run(kMs);
        EXPECT_EQ(a.cm.confirm(network.now, id, {}), 0);
        network.run(kMs);
        EXPECT_EQ(b.last(EventKind::kEstablished).id, b.last(EventKind::kConnectRequest).id);
        return id;
    }
    // Drops the next `n` MADs of type `M`.
    template <class M>
    void lose(int n) {
        network.filter = [n](const Path&, const Mad& mad) mutable { return !is<M>(mad) || n-- <= 0; };
    }
    RejReason rejected_for(const Connect& connect) {
        Id id = Id::kNone;
        EXPECT_EQ(a.cm.connect(network.now, connect, nullptr, id), 0);
        network.run(kMs);
        EXPECT_EQ(a.cm.state(id), State::kClosed);
        EXPECT_EQ(a.last(EventKind::kRejected).id, id);
        EXPECT_EQ(a.cm.destroy(network.now, id), 0);
        return a.last(EventKind::kRejected).reason;
    }

    Network network;
    Host& a = network.add(ipv4(1));
    Host& b = network.add(ipv4(2));
    uint32_t qpn = 100;
};

}  // namespace rove::cm::test
