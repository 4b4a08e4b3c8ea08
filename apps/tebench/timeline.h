// SPDX-License-Identifier: Apache-2.0
// Writes a CSV file of the progress over time, with the columns time_s (CLOCK_MONOTONIC), block size, batch size,
// class, stream, and bytes since the point's start. It shows how an event at a known time, such as the failure of a
// rail, affects the streams.
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

    // Returns false if the file cannot be written; errno holds the reason.
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
