// SPDX-License-Identifier: Apache-2.0
// What had arrived when, as CSV: time_s of CLOCK_MONOTONIC, block and batch size of the point, class, stream, bytes
// since the point's start. With it, what somebody else does at a known time (a rail that dies) is seen in what the
// streams get.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace rove::tebench {

class Timeline {
  public:
    static constexpr uint64_t kStepNs = 1'000'000;

    struct Sample {
        uint64_t time_ns = 0;
        size_t class_index = 0, stream = 0;
        uint64_t bytes = 0;
    };

    // False: it cannot be written; errno says why.
    bool open(const std::string& file) {
        file_ = std::fopen(file.c_str(), "w");
        return file_ != nullptr && std::fputs("time_s,block_size,batch_size,class,stream,bytes\n", file_) >= 0;
    }
    Timeline() = default;
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;
    ~Timeline() {
        if (file_ != nullptr) std::fclose(file_);
    }

    void write(size_t block, size_t batch, const std::vector<std::string>& classes,
               const std::vector<Sample>& samples) {
        for (const Sample& one : samples) {
            std::fprintf(file_, "%.6f,%zu,%zu,%s,%zu,%llu\n", static_cast<double>(one.time_ns) / 1e9, block, batch,
                         classes[one.class_index].c_str(), one.stream, static_cast<unsigned long long>(one.bytes));
        }
        std::fflush(file_);
    }

  private:
    std::FILE* file_ = nullptr;
};

}  // namespace rove::tebench
