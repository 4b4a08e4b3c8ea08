// SPDX-License-Identifier: Apache-2.0
#include "segment.h"

namespace rove::testpmd {

namespace {

tent::Settings settings(const Options& options, const Connection& connection) {
    tent::Settings settings{options.tent, options.tent_keys};
    // The peer has reached us at this address; the engine's own guess may be in another network.
    if (const std::string host = connection.own_address(); !host.empty()) settings.set("rpc_server_hostname", host);
    return settings;
}

}  // namespace

Segment::Segment(const Options& options, const Connection& connection, size_t bytes)
    : memory_(bytes), engine_(settings(options, connection)) {
    require(engine_.startStatus(), "engine");
    require(engine_.registerLocalMemory(memory_.data(), memory_.size()), "memory");
}

void try_engine(const Options& options) {
    const tent::TransferEngine engine(tent::Settings{options.tent, options.tent_keys});
    const tent::Status status = engine.startStatus();
    if (!status.ok()) throw Failure("--tent: " + status.message());
}

void require(const tent::Status& status, const char* what) {
    if (!status.ok()) throw Failure(std::string(what) + ": " + status.ToString());
}

}  // namespace rove::testpmd
