// SPDX-License-Identifier: Apache-2.0
// The exported calls of symbols.def: on our objects to lib/verbs, on others to the real library. (Those that are inline
// in <infiniband/verbs.h> reach us through the context's operations instead.)
#include <string_view>
#include <type_traits>

#include "base/libc.h"
#include "preload/newer_calls.h"
#include "preload/ownership.h"
#include "preload/real.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace rove::verbs {

namespace {

// The answer of a call that rove does not have, in the form of the call's result. Both forms also set errno.
class Refusal {
  public:
    explicit Refusal(int error) : error_(error) { errno = error; }
    operator int() const { return error_; }
    template <class T>
    operator T*() const {
        return nullptr;
    }

  private:
    int error_;
};

Refusal refuse(int error) {
    return Refusal(error);
}

void ignore() {}

// The two calls that wait as read() does, and are cancellation points as it is.
constexpr bool waits(std::string_view call) {
    return call == "ibv_get_cq_event" || call == "ibv_get_async_event";
}
struct Cancellable {};
template <bool kWaits>
using Guard = std::conditional_t<kWaits, Cancellable, libc::NoCancellation>;

template <class First, class... Rest>
bool is_first_ours(const First& first, const Rest&...) {
    return is_ours(first);
}

}  // namespace

}  // namespace rove::verbs

using namespace rove::verbs;

extern "C" {

// A private call of rdma-core, in no installed header; ibv_devinfo uses it.
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type);

// What a call returns on our objects, by what its failures look like: so does it answer in a forked child
// (inherited.h).
#define RETURNS_ERRNO(call) with_errno(provider().is_forked_child() ? ENODEV : call)
#define RETURNS_MINUS_ONE(call) (provider().is_forked_child() ? (errno = ENODEV, -1) : call)
#define RETURNS_MINUS_ERRNO(call) (provider().is_forked_child() ? -ENODEV : call)
#define RETURNS_POINTER(call) \
    (provider().is_forked_child() ? fail<std::remove_pointer_t<decltype(call)>>(ENODEV) : call)
#define RETURNS_NOTHING(call) (provider().is_forked_child() ? ignore() : call)
#define ALWAYS(call) call

#define ROVE_CALL(version, result, name, parameters, arguments, ours) \
    result name parameters {                                          \
        if (is_first_ours arguments) {                                \
            [[maybe_unused]] const Guard<waits(#name)> guard;         \
            return ours;                                              \
        }                                                             \
        return ROVE_REAL(name) arguments;                             \
    }

// Our name for the function is another one than its symbol: headers may or may not declare the symbol.
#define ROVE_NEWER_CALL(version, result, name, parameters, arguments, ours)  \
    result newer_##name parameters asm(#name);                               \
    result newer_##name parameters {                                         \
        if (is_first_ours arguments) {                                       \
            [[maybe_unused]] const Guard<waits(#name)> guard;                \
            return ours;                                                     \
        }                                                                    \
        const auto real = ROVE_REAL_AS(#name, newer_##name);                 \
        if (real == nullptr) return static_cast<result>(refuse(EOPNOTSUPP)); \
        return real arguments;                                               \
    }

#define ROVE_OWN_CALL(version, name)
#define ROVE_NOT_EXPORTED(name, reason)
#define ROVE_HOOK(name)

#include "preload/symbols.def"

}  // extern "C"
