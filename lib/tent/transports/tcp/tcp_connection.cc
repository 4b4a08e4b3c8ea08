// SPDX-License-Identifier: Apache-2.0
// See tcp_connection.h.
#include "tent/transports/tcp/tcp_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace rove::tent {

namespace {

bool is_write(const TcpSlice& one) {
    return one.slice->task->is_write;
}

uint64_t bytes_to_send(const TcpSlice& one) {
    return sizeof(TcpRequest) + (is_write(one) ? one.slice->length : 0);
}

}  // namespace

void TcpConnection::open(Stream stream, uint64_t number, uint64_t now_ns, std::vector<TcpSlice>* ended) {
    stream_ = std::move(stream);
    number_ = number;
    moved_ns_ = now_ns;
    is_readable_ = is_writable_ = true;
    state_ = stream_.is_open() ? State::kOpen : State::kClosed;
    if (state_ == State::kOpen) return;
    for (TcpSlice& one : to_send_) {
        one.outcome = TcpOutcome::kUnreachable;
        ended->push_back(one);
    }
    to_send_.clear();
}

void TcpConnection::note(uint32_t events) {
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) is_readable_ = true;
    if ((events & EPOLLOUT) != 0) is_writable_ = true;
}

uint64_t TcpConnection::advance(uint64_t most, uint64_t now_ns, std::vector<TcpSlice>* ended) {
    has_more_ = false;
    if (state_ != State::kOpen) return 0;
    uint64_t bytes = 0;
    const bool goes_on = receive(most, &bytes, ended) && send(most, &bytes);
    if (bytes != 0) moved_ns_ = now_ns;
    if (!goes_on) end(ended);
    return bytes;
}

void TcpConnection::end(std::vector<TcpSlice>* ended) {
    stream_.close();
    state_ = State::kClosed;
    has_more_ = false;
    for (auto* list : {&to_answer_, &to_send_}) {
        for (TcpSlice& one : *list) {
            one.outcome = TcpOutcome::kBroken;
            one.may_land = is_write(one) && (list == &to_answer_ || sent_ != 0);
            one.number = number_;
            ended->push_back(one);
            if (list == &to_send_) sent_ = 0;
        }
        list->clear();
    }
    sent_ = received_ = 0;
}

bool TcpConnection::send(uint64_t most, uint64_t* bytes) {
    while (is_writable_ && (!to_send_.empty() || stream_.has_unsent())) {
        if (*bytes >= most) {
            has_more_ = true;
            return true;
        }
        std::array<TcpRequest, kTogether> requests;
        std::array<iovec, 2 * kTogether> parts;
        size_t count = 0, together = 0;
        uint64_t skip = sent_;
        const auto add = [&](const void* data, uint64_t length) {
            if (skip < length) parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, length - skip};
            skip -= std::min(skip, length);
        };
        for (; together < std::min(kTogether, to_send_.size()); ++together) {
            const TcpSlice& one = to_send_[together];
            requests[together] = {.operation = is_write(one) ? TcpRequest::kWrite : TcpRequest::kRead,
                                  .address = one.slice->remote,
                                  .length = one.slice->length};
            add(&requests[together], sizeof(TcpRequest));
            if (is_write(one)) add(one.slice->local, one.slice->length);
        }
        const ssize_t sent = stream_.send_some({parts.data(), count});
        if (sent < 0) return false;
        is_writable_ = sent != 0;
        *bytes += static_cast<uint64_t>(sent);
        sent_ += static_cast<uint64_t>(sent);
        while (!to_send_.empty() && sent_ >= bytes_to_send(to_send_.front())) {
            sent_ -= bytes_to_send(to_send_.front());
            to_answer_.push_back(to_send_.front());
            to_send_.pop_front();
        }
    }
    return true;
}

bool TcpConnection::receive(uint64_t most, uint64_t* bytes, std::vector<TcpSlice>* ended) {
    while (is_readable_) {
        if (*bytes >= most) {
            has_more_ = true;
            return true;
        }
        ssize_t got;
        if (received_ < sizeof(answer_)) {
            got = stream_.receive_some(reinterpret_cast<char*>(&answer_) + received_, sizeof(answer_) - received_);
        } else {
            const uint64_t at = received_ - sizeof(answer_);
            const Slice& slice = *to_answer_.front().slice;
            got = stream_.receive_some(slice.local + at, slice.length - at);
        }
        if (got < 0 || (got > 0 && to_answer_.empty())) return false;
        is_readable_ = got != 0;
        if (got == 0) break;
        *bytes += static_cast<uint64_t>(got);
        received_ += static_cast<uint64_t>(got);
        take_answer(ended);
    }
    return true;
}

void TcpConnection::take_answer(std::vector<TcpSlice>* ended) {
    if (received_ < sizeof(answer_)) return;
    TcpSlice& one = to_answer_.front();
    const bool has_data = answer_.refused == 0 && !is_write(one);
    if (received_ < sizeof(answer_) + (has_data ? one.slice->length : 0)) return;
    one.outcome = answer_.refused != 0 ? TcpOutcome::kRefused : TcpOutcome::kDone;
    ended->push_back(one);
    to_answer_.pop_front();
    received_ = 0;
}

}  // namespace rove::tent
