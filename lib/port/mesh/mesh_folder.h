// SPDX-License-Identifier: Apache-2.0
// Who is on a mesh: processes that use the same folder are hosts of one network.
//
// Each member has a name, the first of its addresses, and listens on the socket FOLDER/NAME. FOLDER/ADDRESS is a
// symbolic link to that for every other address. Whoever has an address holds a lock on FOLDER/ADDRESS.lock, which the
// kernel lets go when the process dies. Claiming and leaving exclude each other by a lock on the folder itself, so that
// nobody sees half of it, and what killed members have left behind is removed by whoever claims next.
//
// One member may be the bridge to another network (lib/bridge): its name is kBridge, and it has no addresses.
//
// In a folder that several users share, each can keep the others out by claiming addresses first: they trust each other
// that far. No files outside of the folder are touched: symbolic links in it are not followed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace rove::datapath {

class MeshFolder {
  public:
    static constexpr std::string_view kBridge = "bridge";

    // Opens `folder`, and makes it if it is not there. "": $XDG_RUNTIME_DIR/rove if that variable names a directory of
    // this user, else /tmp/rove-UID; nobody else may write to those. Others may write to a folder that is named (a
    // volume that containers share) if it is root's or has the sticky bit. Null if it cannot be used; `*error` is one
    // line that says why and what to do.
    static std::optional<MeshFolder> open(const std::string& folder, std::string* error);

    MeshFolder(MeshFolder&& other) noexcept = default;
    MeshFolder& operator=(MeshFolder&&) = delete;
    ~MeshFolder() { leave(); }

    // Becomes a member with these addresses (text as inet_ntop prints it), all or none. If none is given: 10.77.H.L and
    // fd77::N of the lowest N in 1..65533 with which both are free (H.L is N as two bytes; N is hexadecimal). False if
    // an address is another's, or none is free; `*error` is one line that says whose. To be called once.
    bool claim(const std::vector<std::string>& addresses, std::string* error);
    // Becomes the bridge, in the same way. It tells the path MTU that the network behind it carries.
    bool claim_bridge(uint32_t mtu, std::string* error);
    // Those claimed, and the first of them, by which other members know this one.
    const std::vector<std::string>& addresses() const { return addresses_; }
    const std::string& name() const { return addresses_.front(); }
    // The socket that others connect to: SOCK_SEQPACKET, non-blocking.
    int listener() const { return listener_.get(); }

    // The name of the member that has this address; null if nobody has it. It may be dead.
    std::optional<std::string> member(const std::string& address) const;
    // All addresses of the member of this name.
    std::vector<std::string> addresses_of(const std::string& member) const;
    // Returns the user who owns the socket of the member of this name; null if there is none.
    std::optional<uid_t> owner(const std::string& member) const;
    // Whether there is a bridge, and what path MTU it has told. It may be dead.
    bool has_bridge() const;
    std::optional<uint32_t> bridge_mtu() const;
    // A connected socket to the member of this name, non-blocking; -1 with errno if it is dead or has never been there.
    int connect(const std::string& member) const;
    // The names of all other members, the bridge's too; some may be dead.
    std::vector<std::string> members() const;

    // Removes what claim() made. Without a claim it does nothing.
    void leave();
    // In a forked child: closes what is the parent's, and removes nothing.
    void after_fork_in_child();

  private:
    class FolderLock;

    MeshFolder(std::string path, FileDescriptor folder, bool named)
        : path_(std::move(path)), folder_(std::move(folder)), named_(named) {}

    void remove_dead() const;
    FileDescriptor take(const std::string& address, bool make) const;
    bool clear(const std::string& address) const;
    void give_back(const std::vector<std::string>& addresses, const std::vector<FileDescriptor>& locks) const;
    std::string take_all(const std::vector<std::string>& addresses, bool* is_taken);
    std::string take_lowest();
    bool listen_at(const std::string& file);
    bool enter();
    void forget();
    std::string lock_text(const std::string& address) const;
    std::string owner_of(const std::string& address) const;

    std::string path_;                    // for messages
    FileDescriptor folder_;               // the directory
    bool named_;                          // by the user: members may be other users' processes
    std::vector<std::string> addresses_;  // empty: no member
    std::vector<FileDescriptor> locks_;   // of each address
    std::string told_;                    // in the lock files, behind who has them
    FileDescriptor listener_;
};

}  // namespace rove::datapath
