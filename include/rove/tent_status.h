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
// they are. Unless a function says otherwise, a call that returns an error has changed nothing. A repeated call may
// succeed only after the event that "retry" names; without a "retry" it fails again until the program or the
// configuration is changed.
enum class Code : int {
    kOk = 0,  // success
    // A wrong value, an unknown key or object, or a combination that is not allowed. Some functions also return it for
    // a state that ends, such as memory that is in use; they say so, and when to retry.
    kInvalidArgument = 1,
    // A limit is reached; the function says which one, and when to retry.
    kTooManyRequests = 2,
    // A range is not within one registered buffer, here or at the peer, or is beyond the file's end. Retry after it has
    // been registered, or the file has grown. From a function that unregisters or frees: there is no such registration
    // or memory.
    kAddressNotRegistered = 3,
    // No transport can carry the request now. Retry when a port has a link again or another transport is available.
    kDeviceNotFound = 4,
    kInvalidEntry = 5,         // a segment handle that is not open
    kInvalidMetadataType = 6,  // an unknown `metadata_type` in the configuration
    // The peer's process was restarted with other devices. Close all handles of its segment, open it again, and retry
    // with the new handle.
    kNeedsRefreshCache = 7,
    kRdmaError = 100,  // a device refused to register memory, for example because it is not mapped
    kCudaError = 101,  // Mooncake's; rove does not return it
    // The metadata store refused, or did not answer. Retry when it is reachable.
    kMetadataError = 131,
    // The peer's process has ended, does not answer, has another version of the protocol, or refuses this engine, for
    // example because of another secret; the text has the reason. Retry when it is running. From a constructor: this
    // engine cannot listen.
    kRpcServiceError = 132,
    kMalformedJson = 133,  // a configuration (TOML or JSON) that cannot be read or parsed
    // The system lacks memory, a thread, a socket, or io_uring: retry when it has them. Or the engine belongs to the
    // process that called fork().
    kInternalError = 199,
    kNotImplemented = 200,  // Mooncake's; rove does not return it
};
// Returns the name of a code without its "k", such as "InvalidArgument", or "unknown code". The string is static.
const char* name(Code code);

// A code and, on failure, a text for the reader of a log: the value that is wrong, and the values that are allowed.
// Success has no text and needs no memory, and copies of a failure share its text.
class [[nodiscard]] Status {
  public:
    using Code = ::mooncake::tent::Code;

    Status() = default;  // kOk
    // Makes a status with this code and text. Allocates memory, and may therefore throw std::bad_alloc.
    Status(Code code, std::string message)
        : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}
    // Returns success, the same as Status().
    static Status OK() { return {}; }

    // Returns true if the code is kOk.
    bool ok() const { return code_ == Code::kOk; }
    // Returns the code.
    Code code() const { return code_; }
    // Returns the text without the code; "" if there is no text. The reference is valid as long as this object, or a
    // copy of it, has the text.
    const std::string& message() const;
    // Returns the code and the text, such as "InvalidArgument: text", or the name of the code alone, such as "Ok", if
    // there is no text. May throw std::bad_alloc.
    std::string ToString() const;
    // Another name for ToString().
    std::string to_string() const { return ToString(); }
    // Returns true if the codes and the texts are equal.
    bool operator==(const Status& other) const { return code_ == other.code_ && message() == other.message(); }

    // Each code except kOk has two functions: Status::InvalidArgument("text") returns a Status with the code and a copy
    // of the text, and may throw std::bad_alloc; status.IsInvalidArgument() returns true if the code of `status` is
    // this one, whatever its text. See Code for the meaning of each code, and for when to retry.
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

// The access to a registered buffer as the target of requests, both of other processes and of its own process with
// LOCAL_SEGMENT_ID. A buffer of any permission can be the source of its own process's requests.
//   kLocalReadWrite   no access: requests get kAddressNotRegistered when they are submitted; it takes nothing away from
//                     another buffer that contains the range (see registerLocalMemory())
//   kGlobalReadOnly   READ; a WRITE gets kInvalidArgument when it is submitted
//   kGlobalReadWrite  READ and WRITE
enum Permission : int { kLocalReadWrite = 0, kGlobalReadOnly = 1, kGlobalReadWrite = 2 };

}  // namespace mooncake::tent

namespace rove::tent {
using namespace ::mooncake::tent;
}
