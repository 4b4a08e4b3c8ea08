// SPDX-License-Identifier: Apache-2.0
#include "port/memif/memif_connection.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/text.h"

namespace rove::datapath {

namespace {

constexpr size_t kMaxRegions = 16;           // for one client; DPDK's and VPP's have 1, or 2 if they copy less
constexpr size_t kMaxRings = 8;              // in each direction
constexpr size_t kMaxFiles = 2;              // more than the one that a message may have
constexpr uint64_t kMaxMeshBytes = 8 << 20;  // for a mesh's client; rove provides up to 5 MiB for the largest frames

// Returns a field of the peer's as text. The field may lack the 0 at its end.
std::string text(const char* field, size_t bytes) {
    return {field, strnlen(field, bytes)};
}

// Requires that `to` is zeroed. Its last byte stays 0.
template <size_t kBytes>
void put(char (&to)[kBytes], std::string_view text) {
    std::memcpy(to, text.data(), std::min(text.size(), kBytes - 1));
}

MemifMessage message_of(MemifType type) {
    MemifMessage message{};
    message.type = type;
    return message;
}

uint64_t ring_bytes(uint8_t log2_slots) {
    return sizeof(MemifRing) + (sizeof(MemifDescriptor) << log2_slots);
}

constexpr uint64_t round_up(uint64_t bytes) {
    return (bytes + alignof(MemifRing) - 1) & ~(alignof(MemifRing) - 1);
}

// Returns true if the file is an eventfd. A write to a file of another kind could block or have other effects.
bool is_eventfd(int file) {
    std::array<char, 32> target{};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const ssize_t bytes = readlink(link.c_str(), target.data(), target.size());
    return bytes > 0 && std::string_view(target.data(), static_cast<size_t>(bytes)) == "anon_inode:[eventfd]";
}

}  // namespace

MemifConnection::MemifConnection(int socket, Settings settings)
    : socket_(socket),
      settings_(std::move(settings)),
      step_(settings_.role == Role::kClient ? Step::kHello : Step::kInit) {
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    if (settings_.role == Role::kClient) return;
    MemifMessage message = message_of(MemifType::kHello);
    put(message.hello.name, settings_.name);
    message.hello.min_version = message.hello.max_version = kMemifVersion;
    message.hello.max_region = kMaxRegions - 1;
    message.hello.max_s2c_ring = message.hello.max_c2s_ring = kMaxRings - 1;
    message.hello.max_log2_slots = kMemifMaxLog2Slots;
    send(message);
}

MemifConnection::~MemifConnection() {
    if (settings_.mesh) return;
    for (const auto& rings : rings_)
        for (const Ring& ring : rings) close(ring.doorbell);
}

MemifConnection::State MemifConnection::advance() {
    // The loop ends: the handshake is finite, and after it any message closes the connection.
    for (Received received; state_ != State::kClosed && receive(&received);) handle(std::exchange(received, {}));
    return state_;
}

void MemifConnection::disconnect(std::string_view reason) {
    if (state_ == State::kClosed) return;
    MemifMessage message = message_of(MemifType::kDisconnect);
    put(message.disconnect.reason, reason);
    send(message);
    close_with(std::string(reason));
}

void MemifConnection::close_with(std::string why) {
    if (state_ != State::kClosed) why_ = std::move(why);
    state_ = State::kClosed;
}

void MemifConnection::lack(std::string_view what, int error) {
    lacked_ = error;
    disconnect(std::string(what) + ": " + reason_of(error));
}

bool MemifConnection::send(MemifMessage message, int file) {
    iovec data{&message, sizeof(message)};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (file >= 0) {
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(rights), &file, sizeof(int));
    }
    // A peer that lets the socket fill up does not read the answers that it waits for.
    const bool sent = sendmsg(socket(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) == ssize_t{sizeof(message)};
    if (!sent) close_with("cannot send to the peer: " + reason_of(errno));
    return sent;
}

// Returns false if there are no more messages, or the connection is closed.
bool MemifConnection::receive(Received* received) {
    iovec data{&received->message, sizeof(received->message)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFiles * sizeof(int))> control;
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t bytes;
    do bytes = recvmsg(socket(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (bytes == 1 && settings_.mesh && state_ == State::kConnected);  // skips the bytes of a sender that rang
    if (bytes < 0) {
        if (errno != EAGAIN && errno != EINTR) close_with("cannot receive from the peer: " + reason_of(errno));
        return false;
    }
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int file;
            std::memcpy(&file, CMSG_DATA(part) + at, sizeof(file));
            received->files.emplace_back(file);
        }
    }
    if (bytes == 0) {
        close_with("the peer has closed the connection");
    } else if (bytes != ssize_t{sizeof(received->message)} || (header.msg_flags & MSG_TRUNC) != 0) {
        disconnect("a message of the wrong size");
    } else if ((header.msg_flags & MSG_CTRUNC) != 0) {
        if (received->files.size() == kMaxFiles) {
            disconnect("too many file descriptors");
        } else {
            lack("no free descriptor for a descriptor of the peer", EMFILE);
        }
    }
    return state_ != State::kClosed;
}

// Returns true if messages of this type come with a descriptor.
bool MemifConnection::brings_file(MemifType type) const {
    if (settings_.role == Role::kClient) return settings_.mesh && type == MemifType::kConnected;
    return type == MemifType::kAddRegion || (type == MemifType::kAddRing && !settings_.mesh);
}

void MemifConnection::handle(Received received) {
    const MemifMessage& message = received.message;
    if (message.type == MemifType::kDisconnect) {
        const std::string reason = printable(text(message.disconnect.reason, kMemifReasonBytes));
        return close_with("the peer disconnects" + (reason.empty() ? "" : ": " + reason));
    }
    const bool has_file = brings_file(message.type);
    if (received.files.size() != (has_file ? 1 : 0)) return disconnect("a message with the wrong file descriptors");
    FileDescriptor file = has_file ? std::move(received.files.front()) : FileDescriptor();
    if (settings_.role == Role::kClient) return handle_as_client(message, std::move(file));
    handle_as_server(message, std::move(file));
}

void MemifConnection::handle_as_client(const MemifMessage& message, FileDescriptor file) {
    if (message.type == MemifType::kHello && step_ == Step::kHello) return hello(message.hello);
    if (message.type == MemifType::kAck && step_ > Step::kHello && step_ < Step::kConnect) return send_next();
    if (message.type != MemifType::kConnected || step_ != Step::kConnect) return disconnect("unexpected message");
    connected(message.connected, file);
}

void MemifConnection::connected(const MemifConnected& said, const FileDescriptor& bells) {
    if (settings_.mesh) {
        if (said.bell >= BellPage::kBells) return disconnect("a bell beyond its page");
        if (const char* const fault = fault_of_shared_memory(bells, BellPage::kBytes)) return disconnect(fault);
        bells_ = SharedMapping(bells, BellPage::kBytes);
        if (bells_.address() == nullptr) return lack("cannot map the bells", errno);
        Ring& ring = rings_[kToServer].front();
        ring.bells = reinterpret_cast<BellPage*>(bells_.address());
        ring.bell = said.bell;
    } else {
        // DPDK's server and libmemif's have set all indices to 0, as if make_memory() had offered no buffers.
        const Ring& ring = to_client();
        __atomic_store_n(&ring.ring->head, static_cast<uint16_t>(1u << ring.log2_slots), __ATOMIC_RELEASE);
    }
    memory_ = {};
    step_ = Step::kDone;
    state_ = State::kConnected;
}

void MemifConnection::hello(const MemifHello& hello) {
    if (hello.min_version > kMemifVersion || hello.max_version < kMemifVersion) return disconnect("another version");
    if (hello.max_log2_slots == 0) return disconnect("no ring is as small as the server wants it");
    peer_name_ = printable(text(hello.name, kMemifNameBytes));
    if (!make_memory(std::min(settings_.log2_slots, hello.max_log2_slots))) return;
    MemifMessage message = message_of(MemifType::kInit);
    message.init.version = kMemifVersion;
    message.init.id = settings_.id;
    message.init.mode = kMemifEthernet;
    put(message.init.name, settings_.name);
    std::memcpy(message.init.secret, settings_.secret.data(), std::min(settings_.secret.size(), kMemifSecretBytes));
    step_ = Step::kInit;
    send(message);
}

// Creates the memory: the rings, followed by the buffers of each. It writes only the headers, and the descriptors that
// a foreign server reads. The other pages take no memory until they are used.
bool MemifConnection::make_memory(uint8_t log2_slots) {
    const uint32_t buffer_bytes = settings_.buffer_bytes, directions = settings_.mesh ? 1 : 2;
    assert(log2_slots >= 1 && log2_slots <= kMemifMaxLog2Slots && buffer_bytes != 0);
    assert(buffer_bytes % alignof(MemifRing) == 0);
    const auto bytes_with = [&](uint8_t log2) {
        return directions * (round_up(ring_bytes(log2)) + (uint64_t{buffer_bytes} << log2));
    };
    // Under a limit on the size of files, a link has fewer slots.
    while (log2_slots > 1 && bytes_with(log2_slots) > most_shared_bytes()) --log2_slots;
    const uint32_t slots = 1u << log2_slots;
    const uint64_t ring_spacing = round_up(ring_bytes(log2_slots)), bytes = bytes_with(log2_slots);
    if (bytes > std::numeric_limits<uint32_t>::max()) {
        disconnect("the buffers would take more than the 4 GiB that memif can address");
        return false;
    }
    memory_ = make_shared_memory("rove-memif", bytes);
    SharedMapping mapping = memory_.is_open() ? SharedMapping(memory_, bytes) : SharedMapping();
    uint8_t* const address = mapping.address();
    if (address == nullptr) {
        lack("no memory to share", errno);
        return false;
    }
    mappings_.push_back(std::move(mapping));
    regions_.push_back({address, bytes});
    for (uint32_t direction = 0; direction != directions; ++direction) {
        const uint64_t first_buffer = directions * ring_spacing + direction * uint64_t{slots} * buffer_bytes;
        auto* const ring = reinterpret_cast<MemifRing*>(address + direction * ring_spacing);
        ring->cookie = kMemifCookie;
        ring->flags = kMemifMaskInterrupt;
        // All buffers of the ring to the client are offered to the server. The other indices are 0.
        if (direction == kToClient) ring->head = static_cast<uint16_t>(slots);
        for (uint32_t slot = 0; slot < slots && !settings_.mesh; ++slot) {
            const auto offset = static_cast<uint32_t>(first_buffer + uint64_t{slot} * buffer_bytes);
            ring->descriptors[slot] = {
                .flags = 0, .region = 0, .length = buffer_bytes, .offset = offset, .metadata = 0};
        }
        const int doorbell = settings_.mesh ? socket() : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (doorbell < 0) {
            lack("no doorbell", errno);
            return false;
        }
        rings_[direction].push_back({.ring = ring,
                                     .log2_slots = log2_slots,
                                     .doorbell = doorbell,
                                     .buffers = address + first_buffer,
                                     .first_buffer = static_cast<uint32_t>(first_buffer),
                                     .buffer_bytes = buffer_bytes});
    }
    return true;
}

void MemifConnection::send_ring(Direction direction) {
    const Ring& ring = rings_[direction].front();
    MemifMessage message = message_of(MemifType::kAddRing);
    message.add_ring.flags = direction == kToServer ? kMemifClientToServer : uint16_t{0};
    message.add_ring.offset =
        static_cast<uint32_t>(reinterpret_cast<const uint8_t*>(ring.ring) - regions_.front().address);
    message.add_ring.log2_slots = ring.log2_slots;
    send(message, settings_.mesh ? -1 : ring.doorbell);
}

// Sends the next message, because the server has acknowledged the one that was sent at step_.
void MemifConnection::send_next() {
    step_ = static_cast<Step>(static_cast<uint8_t>(step_) + 1);
    if (step_ == Step::kAddRingToClient && settings_.mesh) step_ = Step::kConnect;
    if (step_ == Step::kAddRingToServer) return send_ring(kToServer);
    if (step_ == Step::kAddRingToClient) return send_ring(kToClient);
    if (step_ == Step::kAddRegion) {
        MemifMessage message = message_of(MemifType::kAddRegion);
        message.add_region.bytes = regions_.front().bytes;
        send(message, memory_.get());
        return;
    }
    MemifMessage message = message_of(MemifType::kConnect);
    put(message.connect.name, settings_.name);
    send(message);
}

void MemifConnection::handle_as_server(const MemifMessage& message, FileDescriptor file) {
    const bool describes = step_ == Step::kAddRegion;
    if (message.type == MemifType::kInit && step_ == Step::kInit) {
        init(message.init);
    } else if (message.type == MemifType::kAddRegion && describes) {
        add_region(message.add_region, file);
    } else if (message.type == MemifType::kAddRing && describes) {
        add_ring(message.add_ring, std::move(file));
    } else if (message.type == MemifType::kConnect && describes) {
        return connect();
    } else {
        return disconnect("unexpected message");
    }
    if (state_ != State::kClosed) send(message_of(MemifType::kAck));
}

void MemifConnection::init(const MemifInit& init) {
    peer_name_ = printable(text(init.name, kMemifNameBytes));
    if (init.version != kMemifVersion) return disconnect("another version");
    if (init.id != settings_.id) return disconnect("no interface has this id");
    if (init.mode != kMemifEthernet) return disconnect("only Ethernet frames");
    if (!settings_.secret.empty() && text(init.secret, kMemifSecretBytes) != settings_.secret)
        return disconnect("wrong secret");
    step_ = Step::kAddRegion;
}

void MemifConnection::add_region(const MemifAddRegion& said, const FileDescriptor& memory) {
    if (said.index != regions_.size()) return disconnect("a region out of order");
    if (regions_.size() == kMaxRegions) return disconnect("too many regions");
    if (settings_.mesh && said.bytes > kMaxMeshBytes) return disconnect("a region that is too large");
    if (const char* const fault = fault_of_shared_memory(memory, said.bytes)) return disconnect(fault);
    SharedMapping mapping(memory, said.bytes);
    if (mapping.address() == nullptr) return lack("cannot map a region", errno);
    regions_.push_back({mapping.address(), mapping.bytes()});
    mappings_.push_back(std::move(mapping));
}

void MemifConnection::add_ring(const MemifAddRing& said, FileDescriptor doorbell) {
    const Direction direction = (said.flags & kMemifClientToServer) != 0 ? kToServer : kToClient;
    if (settings_.mesh && direction == kToClient) return disconnect("a ring to the client");
    auto& rings = rings_[direction];
    if (said.index != rings.size()) return disconnect("a ring out of order");
    if (rings.size() == kMaxRings) return disconnect("too many rings");
    if (said.private_header_bytes != 0) return disconnect("descriptors with private headers");
    if (said.log2_slots < 1 || said.log2_slots > kMemifMaxLog2Slots) return disconnect("a ring of the wrong size");
    if (said.region >= regions_.size()) return disconnect("a ring in no region");
    const Region& region = regions_[said.region];
    if (said.offset % alignof(MemifRing) != 0) return disconnect("a ring that is not aligned to 64 bytes");
    if (said.offset + ring_bytes(said.log2_slots) > region.bytes) return disconnect("a ring beyond its region");
    uint8_t* const address = region.address + said.offset;
    for (const auto& others : rings_)
        for (const Ring& other : others) {
            auto* const begin = reinterpret_cast<uint8_t*>(other.ring);
            if (address < begin + ring_bytes(other.log2_slots) && begin < address + ring_bytes(said.log2_slots))
                return disconnect("rings that overlap");
        }
    if (!settings_.mesh) {
        const int mode = fcntl(doorbell.get(), F_GETFL);
        if (!is_eventfd(doorbell.get()) || fcntl(doorbell.get(), F_SETFL, mode | O_NONBLOCK) != 0)
            return disconnect("a doorbell that is not an eventfd");
    }
    rings.push_back({.ring = reinterpret_cast<MemifRing*>(address),
                     .log2_slots = said.log2_slots,
                     .doorbell = doorbell.release(),
                     .bells = settings_.bells,
                     .bell = settings_.bell});
}

void MemifConnection::connect() {
    for (const Direction direction : {kToServer, kToClient}) {
        const auto& rings = rings_[direction];
        if (rings.empty() && !(settings_.mesh && direction == kToClient))
            return disconnect("a direction without a ring");
        for (const Ring& ring : rings)
            if (__atomic_load_n(&ring.ring->cookie, __ATOMIC_RELAXED) != kMemifCookie)
                return disconnect("a ring without its cookie");
    }
    MemifMessage message = message_of(MemifType::kConnected);
    put(message.connected.name, settings_.name);
    message.connected.bell = settings_.bell;
    if (!send(message, settings_.bell_file)) return;
    step_ = Step::kDone;
    state_ = State::kConnected;
}

}  // namespace rove::datapath
