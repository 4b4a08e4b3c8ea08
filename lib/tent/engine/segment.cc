// SPDX-License-Identifier: Apache-2.0
// See segment.h.
#include "tent/engine/segment.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rove::tent {

const BufferDesc* SegmentDesc::find(uint64_t address, uint64_t length) const {
    auto at = std::upper_bound(buffers.begin(), buffers.end(), address,
                               [](uint64_t value, const BufferDesc& buffer) { return value < buffer.address; });
    // Buffers may overlap, so one that begins earlier may reach further. In most cases the first one contains the
    // range.
    while (at != buffers.begin()) {
        --at;
        if (length <= at->length && address - at->address <= at->length - length) return &*at;
    }
    return nullptr;
}

std::string to_hex(const std::array<uint8_t, 16>& gid) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const uint8_t byte : gid) text += {kDigits[byte >> 4], kDigits[byte & 15]};
    return text;
}

bool from_hex(const std::string& text, std::array<uint8_t, 16>* gid) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    if (text.size() != 2 * gid->size()) return false;
    for (size_t i = 0; i < gid->size(); ++i) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        (*gid)[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return true;
}

Json to_json(const SegmentDesc& segment) {
    Json devices = Json::array(), buffers = Json::array();
    for (const DeviceDesc& device : segment.devices)
        devices.push_back({{"name", device.name}, {"gid", to_hex(device.gid)}, {"mtu", device.mtu}});
    for (const BufferDesc& buffer : segment.buffers) {
        buffers.push_back({{"addr", buffer.address},
                           {"length", buffer.length},
                           {"location", buffer.location},
                           {"writable", buffer.writable},
                           {"rkey", buffer.rkeys},
                           {"ranks", buffer.ranks},
                           {"shared", buffer.shared ? to_hex(*buffer.shared) : ""}});
    }
    return {{"name", segment.name},
            {"type", "memory"},
            {"instance", segment.instance},
            {"shm_server", segment.shm_server},
            {"data_addr", segment.data_address},
            {"devices", std::move(devices)},
            {"buffers", std::move(buffers)}};
}

namespace {

bool parse_device(const Json& object, DeviceDesc* device) {
    std::string gid;
    const auto is_mtu = [](uint32_t mtu) { return mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0; };
    return object.is_object() && get(object, "name", &device->name) && get(object, "gid", &gid) &&
           from_hex(gid, &device->gid) && get(object, "mtu", &device->mtu) && is_mtu(device->mtu);
}

bool parse_buffer(const Json& object, size_t devices, BufferDesc* buffer) {
    std::string shared;
    if (!object.is_object() || !get(object, "addr", &buffer->address) || !get(object, "length", &buffer->length) ||
        !get(object, "location", &buffer->location) || !get(object, "writable", &buffer->writable) ||
        !get(object, "shared", &shared)) {
        return false;
    }
    if (buffer->address + buffer->length < buffer->address) return false;
    if (!shared.empty() && !from_hex(shared, &buffer->shared.emplace())) return false;
    const Json* ranks = get_array(object, "ranks", kMaxDevices);
    if (ranks == nullptr || (!ranks->empty() && ranks->size() != devices)) return false;
    for (const Json& rank : *ranks) {
        if (!rank.is_number_unsigned() || rank.get<uint64_t>() >= kRanks) return false;
        buffer->ranks.push_back(rank.get<uint8_t>());
    }
    const Json* rkeys = get_array(object, "rkey", kMaxDevices);
    if (rkeys == nullptr || rkeys->size() != devices) return false;
    for (const Json& rkey : *rkeys) {
        if (!rkey.is_number_unsigned() || rkey.get<uint64_t>() > UINT32_MAX) return false;
        buffer->rkeys.push_back(rkey.get<uint32_t>());
    }
    return true;
}

}  // namespace

std::optional<SegmentDesc> parse_segment(const Json& object) {
    SegmentDesc segment;
    std::string type;
    if (!get(object, "name", &segment.name) || !get(object, "type", &type) || type != "memory" ||
        !get(object, "instance", &segment.instance) || !get(object, "shm_server", &segment.shm_server) ||
        !get(object, "data_addr", &segment.data_address)) {
        return std::nullopt;
    }
    const Json* devices = get_array(object, "devices", kMaxDevices);
    const Json* buffers = get_array(object, "buffers", kMaxBuffers);
    if (devices == nullptr || buffers == nullptr) return std::nullopt;
    for (const Json& device : *devices)
        if (!parse_device(device, &segment.devices.emplace_back())) return std::nullopt;
    for (const Json& buffer : *buffers)
        if (!parse_buffer(buffer, segment.devices.size(), &segment.buffers.emplace_back())) return std::nullopt;
    std::stable_sort(segment.buffers.begin(), segment.buffers.end(),
                     [](const BufferDesc& a, const BufferDesc& b) { return a.address < b.address; });
    return segment;
}

}  // namespace rove::tent
