// SPDX-License-Identifier: Apache-2.0
// Who is on a mesh: processes that use the same folder are hosts of one network.
//
// Each has a name, the first of its addresses, and listens on the socket FOLDER/NAME. FOLDER/ADDRESS is a symbolic link
// to that for every other address. Whoever has an address holds a lock on FOLDER/ADDRESS.lock, which the kernel lets go
// when the process dies. Claims and leaves exclude each other by a lock on the folder itself, so that nobody sees half
// of one, and what killed members have left is removed by the next who claims.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rove::datapath {

class MeshFolder {
  public:
    // Opens `folder`, and makes it if it is not there. "": $XDG_RUNTIME_DIR/rove if that variable names a directory of
    // this user, else /tmp/rove-UID; nobody else may have rights in those. Others may write to a folder that is named
    // (a volume that containers share) if it is root's or has the sticky bit. Null if it cannot be used; `*error` is
    // one line that says why and what to do.
    static std::optional<MeshFolder> open(const std::string& folder, std::string* error);

    MeshFolder(MeshFolder&& other) noexcept;
    MeshFolder& operator=(MeshFolder&&) = delete;
    ~MeshFolder();  // leaves

    // Becomes a member with these addresses (text as inet_ntop prints it), all or none. If none is given: 10.77.H.L and
    // fd77::N of the lowest N in 1..65533 that both are free for (H.L is N as two bytes, N is hexadecimal). False if an
    // address is another's, or none is free; `*error` says whose. Once for an object.
    bool claim(const std::vector<std::string>& addresses, std::string* error);
    // Those claimed, and the first of them, by which other members know this one.
    const std::vector<std::string>& addresses() const { return addresses_; }
    const std::string& name() const { return addresses_.front(); }
    // The socket that others connect to: SOCK_SEQPACKET, non-blocking.
    int listener() const { return listener_; }

    // The name of the member that has this address.
    std::optional<std::string> member(const std::string& address) const;
    // A connected socket to the member of this name, non-blocking; -1 with errno if there is none, or it is dead.
    int connect(const std::string& member) const;
    // The names of all other members, some of which may be dead.
    std::vector<std::string> members() const;

    // Removes what claim() made.
    void leave();
    // In a forked child: closes what is the parent's, and removes nothing.
    void after_fork_in_child();

  private:
    struct Lock {
        std::string address;
        int file;  // locked as long as it is open
    };

    MeshFolder(std::string path, int folder, bool shared) : path_(std::move(path)), folder_(folder), shared_(shared) {}

    std::string path_;                    // for messages
    int folder_ = -1;                     // the directory
    bool shared_ = false;                 // named by the user: other users may be members
    std::vector<std::string> addresses_;  // empty: no member
    std::vector<Lock> locks_;             // one an address
    int listener_ = -1;
};

}  // namespace rove::datapath
