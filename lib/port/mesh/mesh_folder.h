// SPDX-License-Identifier: Apache-2.0
// The members of a mesh: processes that use the same folder are hosts of one network.
//
// Each member has a name, which is the first of its addresses, and listens on the socket FOLDER/NAME. For every other
// address, FOLDER/ADDRESS is a symbolic link to that socket. The owner of an address holds a lock on
// FOLDER/ADDRESS.lock, which the kernel releases when the process dies. A lock on the folder itself makes claiming and
// leaving exclude each other, so that no process sees an unfinished change. The next process that claims addresses
// removes the files that killed members have left.
//
// One member may be the bridge to another network (lib/bridge). Its name is kBridge, and it has no addresses.
//
// In a folder that several users share, each can keep the others out by claiming addresses first. They trust each other
// to that extent. No file outside the folder is touched, because symbolic links in it are not followed.
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

    // Opens `folder`, and creates it if it does not exist. "" means $XDG_RUNTIME_DIR/rove if that variable names a
    // directory of this user, else /tmp/rove-UID. No other user may have write access to these two. To a folder that
    // was named (a volume that containers share), other users may write if it is root's or has the sticky bit. Returns
    // null if the folder cannot be used; `*error` is then one line that gives the reason and a remedy.
    static std::optional<MeshFolder> open(const std::string& folder, std::string* error);

    MeshFolder(MeshFolder&& other) noexcept = default;
    MeshFolder& operator=(MeshFolder&&) = delete;
    ~MeshFolder() { leave(); }

    // Becomes a member with all of these addresses (text as inet_ntop prints it), or fails. If the list is empty, the
    // addresses are 10.77.H.L and fd77::N of the lowest N in 1..65533 for which both are free. (H.L is N as two bytes;
    // N is hexadecimal.) Returns false if an address belongs to another process or no address is free; `*error` is then
    // one line that names the owner. It may be called once.
    bool claim(const std::vector<std::string>& addresses, std::string* error);
    // Becomes the bridge in the same way. Publishes the path MTU that the network behind it carries.
    bool claim_bridge(uint32_t mtu, std::string* error);
    // Returns the claimed addresses. name() returns the first of them, by which other members know this one.
    const std::vector<std::string>& addresses() const { return addresses_; }
    const std::string& name() const { return addresses_.front(); }
    // Returns the socket to which others connect: SOCK_SEQPACKET, non-blocking.
    int listener() const { return listener_.get(); }

    // Returns the name of the member that has this address, or null if no member has it. The member may be dead.
    std::optional<std::string> member(const std::string& address) const;
    // Returns all addresses of the member of this name.
    std::vector<std::string> addresses_of(const std::string& member) const;
    // Returns the user who owns the socket of the member of this name, or null if there is no such member.
    std::optional<uid_t> owner(const std::string& member) const;
    // Returns true if there is a bridge. bridge_mtu() returns the path MTU that it has published. The bridge may be
    // dead.
    bool has_bridge() const;
    std::optional<uint32_t> bridge_mtu() const;
    // Returns a connected, non-blocking socket to the member of this name, or -1 with errno if the member is dead or
    // has never existed.
    int connect(const std::string& member) const;
    // Returns the names of all other members, including the bridge. Some of them may be dead.
    std::vector<std::string> members() const;

    // Removes the files that claim() has made. Without a claim it does nothing.
    void leave();
    // Closes the parent's files in a forked child, and removes nothing.
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
    FileDescriptor folder_;               // descriptor of the directory
    bool named_;                          // named by the user, so that members may be other users' processes
    std::vector<std::string> addresses_;  // empty if this is not a member
    std::vector<FileDescriptor> locks_;   // one for each address
    std::string told_;                    // text behind the owner in the lock files
    FileDescriptor listener_;
};

}  // namespace rove::datapath
