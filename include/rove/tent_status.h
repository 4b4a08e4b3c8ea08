// SPDX-License-Identifier: Apache-2.0
// What a call of the engine returns. The numbers are the documented ones: C and Python
// callers see them. The namespace of what programs see is that of Mooncake, whose headers declare some of it ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace mooncake::tent {

enum class Code : int {
    kOk = 0,
    kInvalidArgument = 1,       // the caller's: a value, a key or a combination that is never accepted
    kTooManyRequests = 2,       // nothing of the call was taken; it may be tried again when something has completed
    kAddressNotRegistered = 3,  // memory outside of every registered buffer, here or at the peer
    kDeviceNotFound = 4,        // no device or transport that may carry it is there or up
    kInvalidEntry = 5,          // a handle, segment or batch that does not exist
    kInvalidMetadataType = 6,
    kNeedsRefreshCache = 7,  // what is known of a segment is out of date; fetched anew, the call may succeed
    kRdmaError = 100,
    kCudaError = 101,
    kMetadataError = 131,    // the metadata store
    kRpcServiceError = 132,  // the peer's control plane
    kMalformedJson = 133,    // text that cannot be parsed: configuration (TOML) or metadata (JSON)
    kInternalError = 199,
    kNotImplemented = 200,
};
const char* name(Code code);  // "InvalidArgument"

// A code and, unless it is kOk, what is wrong with which value, for the reader of a log. Nearly all are kOk, and cost
// nothing.
class [[nodiscard]] Status {
  public:
    using Code = ::mooncake::tent::Code;

    Status() = default;
    Status(Code code, std::string message)
        : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}
    static Status OK() { return {}; }

    bool ok() const { return code_ == Code::kOk; }
    Code code() const { return code_; }
    const std::string& message() const;
    std::string ToString() const;                         // "InvalidArgument: message"
    std::string to_string() const { return ToString(); }  // the same
    bool operator==(const Status& other) const { return code_ == other.code_ && message() == other.message(); }

    // Status::InvalidArgument("text") and status.IsInvalidArgument(), for each code.
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

inline std::ostream& operator<<(std::ostream& out, const Status& status) {
    return out << status.ToString();
}

// Who may use a registered buffer.
enum Permission : int { kLocalReadWrite = 0, kGlobalReadOnly = 1, kGlobalReadWrite = 2 };

}  // namespace mooncake::tent

namespace rove::tent {
using namespace ::mooncake::tent;
}
