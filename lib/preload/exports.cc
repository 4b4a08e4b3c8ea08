// SPDX-License-Identifier: Apache-2.0
// The exported calls of symbols.def. Calls on rove's objects go to lib/verbs, calls on other objects to the real
// library. Calls that are inline functions in <infiniband/verbs.h> use the context's operations instead.
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

// The result of a call that rove does not offer, as an errno value or a null pointer. Both set errno.
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

// Returns true for the two calls that wait like read(), and are cancellation points like it.
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

// A private call of rdma-core that no installed header declares; ibv_devinfo uses it.
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type);

// The result of a call on rove's objects, by the way in which the call reports failure. In a forked child each of them
// reports ENODEV (fork_stubs.h).
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

// The function's name differs from its symbol, because headers may declare the symbol or not.
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
