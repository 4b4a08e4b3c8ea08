# SPDX-License-Identifier: Apache-2.0
# Functions for tests that need a separate Debian. Include them by `source`. They need root and debootstrap.

# make_chroot FOLDER RELEASE: installs a small Debian of that release in FOLDER, from this machine's mirror. An existing
# one is kept.
make_chroot() {
    local folder="$1" release="$2" mirror
    # debootstrap removes this folder last.
    [[ ! -e "$folder/debootstrap" && -e "$folder/etc/debian_version" ]] && return
    mirror="$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' |
        head -n 1)"
    [[ -n "$mirror" ]] || { echo "chroot: no mirror of Debian in /etc/apt" >&2 && return 1; }
    rm -rf --one-file-system "$folder"
    mkdir -p "$folder"
    echo "installing Debian $release in $folder"
    debootstrap --variant=minbase "$release" "$folder" "$mirror" >"$folder.log" 2>&1 || {
        tail -n 20 "$folder.log" >&2
        echo "chroot: debootstrap of $release failed: $folder.log" >&2
        return 1
    }
    cp /etc/hosts "$folder/etc/hosts"
}

# in_chroot FOLDER COMMAND ARGS...: runs a command in the chroot as root, in its folder /rove. The mounts are in a
# separate namespace and end with it. The chroot must be a mount point for `ip netns`.
in_chroot() {
    local folder="$1"
    shift
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -euc '
        folder="$1"
        shift
        mount --bind "$folder" "$folder"
        for file_system in /dev /sys; do mount --rbind "$file_system" "$folder$file_system"; done
        mount -t proc proc "$folder/proc"
        mount -t tmpfs tmpfs "$folder/run"
        mkdir -p "$folder/rove"
        exec chroot "$folder" env --ignore-environment --chdir=/rove HOME=/root LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' - "$folder" "$@"
}

# copy_tree SOURCE FOLDER: copies a working tree without its builds. Unchanged files keep their times, so that
# they are not compiled again.
copy_tree() {
    mkdir -p "$2"
    rsync -rlp --checksum --delete --exclude=/.git '--exclude=/build*' --exclude=__pycache__ "$1/" "$2/"
}
