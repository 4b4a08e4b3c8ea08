// SPDX-License-Identifier: Apache-2.0
// Status, the return value of the TENT engine's calls, and Permission. Everything here is in Mooncake's namespace,
// mooncake::tent, because Mooncake's headers declare some of it in advance, and also in rove::tent.
//
// Status is a value: threads may use their own copies freely, and one object under the rules of std::string.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace mooncake::tent {

// The error codes. The numbers are part of the ABI; C programs see them negated (<rove/tent.h>), Python programs as
// they are.
enum class Code : int {
    kOk = 0,
    kInvalidArgument = 1,       // a value, key or combination that is never accepted
    kTooManyRequests = 2,       // no room, and nothing was done; try again after a request has completed
    kAddressNotRegistered = 3,  // a range that is not within one registered buffer, here or at the peer
    kDeviceNotFound = 4,        // no available device or transport can carry the request
    kInvalidEntry = 5,          // a segment handle that is not open
    kInvalidMetadataType = 6,   // an unknown `metadata_type` in the configuration
    kNeedsRefreshCache = 7,     // the peer was restarted with other devices: close its segment and open it
    kRdmaError = 100,           // a device refused to register memory
    kCudaError = 101,           // Mooncake's; rove does not return it
    kMetadataError = 131,       // the metadata store failed
    kRpcServiceError = 132,     // the peer's process does not answer, or this engine cannot listen
    kMalformedJson = 133,       // a configuration (TOML or JSON) that cannot be read or parsed
    kInternalError = 199,       // the system lacks memory, a thread, a socket, or io_uring
    kNotImplemented = 200,      // Mooncake's; rove does not return it
};
// Returns the name of a code without its "k", such as "InvalidArgument", or "unknown code". The string is static.
const char* name(Code code);

// A code and, on failure, a text for the reader of a log: the value that is wrong, and the values that are allowed.
// Success has no text and needs no memory, and copies of a failure share its text.
class [[nodiscard]] Status {
  public:
    using Code = ::mooncake::tent::Code;

    Status() = default;  // kOk
    // Allocates memory for the text, and may therefore throw std::bad_alloc.
    Status(Code code, std::string message)
        : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}
    // Returns success, the same as Status().
    static Status OK() { return {}; }

    // Returns true if the code is kOk.
    bool ok() const { return code_ == Code::kOk; }
    Code code() const { return code_; }
    // The text without the code; "" if there is no text. The reference is valid as long as this object, or a copy of
    // it.
    const std::string& message() const;
    // Returns "InvalidArgument: text", or the name of the code alone if there is no text.
    std::string ToString() const;
    // Another name for ToString().
    std::string to_string() const { return ToString(); }
    // Returns true if the codes and the texts are equal.
    bool operator==(const Status& other) const { return code_ == other.code_ && message() == other.message(); }

    // For each code a function that makes a Status with it, Status::InvalidArgument("text"), and one that returns true
    // if a Status has it, status.IsInvalidArgument().
#define ROVE_TENT_CODE(code)                          \
    static Status code(std::string_view message) {    \
        return {Code::k##code, std::string(message)}; \
    }                                                 \
    bool Is##code() const {                           \
        return code_ == Code::k##code;                \
    }
    ROVE_TENT_CODE(InvalidArgument)
    ROVE_TENT_CODE(TooManyRequests)
    ROVE_TENT_CODE(AddressNotRegistered)
    ROVE_TENT_CODE(DeviceNotFound)
    ROVE_TENT_CODE(InvalidEntry)
    ROVE_TENT_CODE(InvalidMetadataType)
    ROVE_TENT_CODE(NeedsRefreshCache)
    ROVE_TENT_CODE(RdmaError)
    ROVE_TENT_CODE(CudaError)
    ROVE_TENT_CODE(MetadataError)
    ROVE_TENT_CODE(RpcServiceError)
    ROVE_TENT_CODE(MalformedJson)
    ROVE_TENT_CODE(InternalError)
    ROVE_TENT_CODE(NotImplemented)
#undef ROVE_TENT_CODE

  private:
    Code code_ = Code::kOk;
    std::shared_ptr<const std::string> message_;
};

// Writes status.ToString().
inline std::ostream& operator<<(std::ostream& out, const Status& status) {
    return out << status.ToString();
}

// The access that other processes have to a registered buffer. The process that registered it may always use it as the
// source of a request. kLocalReadWrite: no access, and requests get kAddressNotRegistered; kGlobalReadOnly: READ, and
// WRITEs get kInvalidArgument; kGlobalReadWrite: READ and WRITE.
enum Permission : int { kLocalReadWrite = 0, kGlobalReadOnly = 1, kGlobalReadWrite = 2 };

}  // namespace mooncake::tent

namespace rove::tent {
using namespace ::mooncake::tent;
}
