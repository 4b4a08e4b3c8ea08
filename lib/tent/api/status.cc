// SPDX-License-Identifier: Apache-2.0
// The documented names of status codes.
#include "rove/tent_status.h"

namespace mooncake::tent {

const char* name(Code code) {
    switch (code) {
        case Code::kOk:
            return "Ok";
        case Code::kInvalidArgument:
            return "InvalidArgument";
        case Code::kTooManyRequests:
            return "TooManyRequests";
        case Code::kAddressNotRegistered:
            return "AddressNotRegistered";
        case Code::kDeviceNotFound:
            return "DeviceNotFound";
        case Code::kInvalidEntry:
            return "InvalidEntry";
        case Code::kInvalidMetadataType:
            return "InvalidMetadataType";
        case Code::kNeedsRefreshCache:
            return "NeedsRefreshCache";
        case Code::kRdmaError:
            return "RdmaError";
        case Code::kCudaError:
            return "CudaError";
        case Code::kMetadataError:
            return "MetadataError";
        case Code::kRpcServiceError:
            return "RpcServiceError";
        case Code::kMalformedJson:
            return "MalformedJson";
        case Code::kInternalError:
            return "InternalError";
        case Code::kNotImplemented:
            return "NotImplemented";
    }
    return "unknown code";
}

const std::string& Status::message() const {
    static const std::string none;
    return message_ == nullptr ? none : *message_;
}

std::string Status::ToString() const {
    return message().empty() ? name(code_) : std::string(name(code_)) + ": " + message();
}

}  // namespace mooncake::tent
