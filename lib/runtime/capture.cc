// SPDX-License-Identifier: Apache-2.0
// Writes the pcapng format: draft-ietf-opsawg-pcapng.
#include "runtime/capture.h"

#include <time.h>

#include <cerrno>
#include <cstring>

namespace rove::datapath {

namespace {

constexpr uint32_t kSectionHeader = 0x0A0D0D0A, kInterfaceDescription = 1, kEnhancedPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kLinkEthernet = 1;
constexpr uint16_t kOptionName = 2, kOptionFlags = 2, kOptionTimeUnit = 9;
constexpr uint8_t kNanoseconds = 9;  // 10^-9 s

class Body {
  public:
    void put(const void* data, size_t bytes) {
        const auto* const from = static_cast<const uint8_t*>(data);
        bytes_.insert(bytes_.end(), from, from + bytes);
        bytes_.resize((bytes_.size() + 3) / 4 * 4);
    }
    void put32(uint32_t value) { put(&value, sizeof value); }
    void put16(uint16_t first, uint16_t second) {
        const uint16_t both[] = {first, second};
        put(both, sizeof both);
    }
    void option(uint16_t code, const void* value, uint16_t bytes) {
        put16(code, bytes);
        put(value, bytes);
    }
    void end_options() { put32(0); }
    std::span<const uint8_t> bytes() const { return bytes_; }

  private:
    std::vector<uint8_t> bytes_;
};

}  // namespace

std::unique_ptr<Capture> Capture::start(const std::string& file, const std::vector<std::string>& ports,
                                        std::string* error) {
    FILE* const opened = std::fopen(file.c_str(), "wbe");
    if (opened == nullptr) {
        *error = file + ": " + std::strerror(errno);
        return nullptr;
    }
    std::unique_ptr<Capture> capture(new Capture(file, opened));
    Body section;
    section.put32(kByteOrder);
    section.put16(1, 0);  // version of the format
    section.put32(UINT32_MAX);
    section.put32(UINT32_MAX);  // a section of unknown length
    capture->write_block(kSectionHeader, section.bytes());
    for (const std::string& port : ports) {
        Body interface;
        interface.put16(kLinkEthernet, 0);
        interface.put32(0);  // no limit: frames are captured whole
        interface.option(kOptionName, port.data(), static_cast<uint16_t>(port.size()));
        interface.option(kOptionTimeUnit, &kNanoseconds, sizeof kNanoseconds);
        interface.end_options();
        capture->write_block(kInterfaceDescription, interface.bytes());
    }
    if (capture->lost_ == 0) return capture;
    *error = file + ": " + std::strerror(errno);
    return nullptr;
}

Capture::~Capture() {
    std::fclose(file_);
    if (lost_ != 0) std::fprintf(stderr, "rove: %s lacks %lu frames that could not be written\n", name_.c_str(), lost_);
}

void Capture::write_block(uint32_t type, std::span<const uint8_t> body) {
    const auto bytes = static_cast<uint32_t>(body.size() + 12);
    const uint32_t head[] = {type, bytes};
    std::fwrite(head, sizeof head, 1, file_);
    std::fwrite(body.data(), body.size(), 1, file_);
    // Flushes, so that a program that reads the file meanwhile sees whole frames.
    if (std::fwrite(&bytes, sizeof bytes, 1, file_) != 1 || std::fflush(file_) != 0) ++lost_;
}

void Capture::write(uint16_t port, std::span<const uint8_t> frame, uint32_t direction) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    const auto bytes = static_cast<uint32_t>(frame.size());
    Body packet;
    packet.put32(port);
    packet.put32(static_cast<uint32_t>(ns >> 32));
    packet.put32(static_cast<uint32_t>(ns));
    packet.put32(bytes);
    packet.put32(bytes);
    packet.put(frame.data(), frame.size());
    packet.option(kOptionFlags, &direction, sizeof direction);
    packet.end_options();
    const std::lock_guard lock(mutex_);
    write_block(kEnhancedPacket, packet.bytes());
}

}  // namespace rove::datapath
