// SPDX-License-Identifier: Apache-2.0
// Reads classic little-endian pcap files for tests. Returns whole frames in the order of the capture.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace rove::test {

using Frame = std::vector<uint8_t>;

// Throws std::runtime_error if the file cannot be read or is not in this format.
inline std::vector<Frame> read_pcap(const std::string& path) {
    constexpr uint32_t kMagicMicroseconds = 0xA1B2C3D4, kMagicNanoseconds = 0xA1B23C4D;
    std::ifstream file(path, std::ios::binary);
    std::array<uint32_t, 6> header{};  // magic, version, zone, accuracy, snapshot length, link type
    std::array<uint32_t, 4> record{};  // seconds, fraction, bytes captured, bytes on the wire
    file.read(reinterpret_cast<char*>(header.data()), sizeof header);
    if (!file || (header[0] != kMagicMicroseconds && header[0] != kMagicNanoseconds))
        throw std::runtime_error(path + ": not a pcap file");
    std::vector<Frame> frames;
    while (file.read(reinterpret_cast<char*>(record.data()), sizeof record)) {
        Frame frame(record[2]);
        file.read(reinterpret_cast<char*>(frame.data()), static_cast<std::streamsize>(frame.size()));
        if (!file) throw std::runtime_error(path + ": cut short");
        frames.push_back(std::move(frame));
    }
    return frames;
}

}  // namespace rove::test
