/* Where the stager is: its cgroup and its mount namespace. */
#define _GNU_SOURCE
#include "first.h"

#include "calls.h"
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup"
#define LEAF CGROUPS "/" STAGER_PROGRAM

/*
 * Enters a leaf cgroup if only cgroup v2 is mounted: a cgroup that has processes
 * cannot enable controllers for its children (cgroups(7), "no internal
 * processes"). The apps' cgroups will be siblings of the leaf.
 */
void enter_leaf(void)
{
	struct statfs fs;
	int fd;

	if (statfs(CGROUPS, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return;
	if (mkdir(LEAF, 0755) < 0 && errno != EEXIST)
		give_up("make cgroup " LEAF);
	fd = open(LEAF "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		give_up("enter cgroup " LEAF);
	close(fd);
}

/*
 * Detaches the host's root, which pivot_root(2) has put on top of the new one. Its mounts become slaves first: an
 * unmount of the volumes that the daemon shares with the host would unmount what lies in them there, and in the new
 * root. The working directory is the new root before and afterwards.
 */
static void detach(int old)
{
	if (fchdir(old) < 0 || mount("", ".", "", MS_SLAVE | MS_REC, NULL) < 0)
		give_up("make host's mounts slaves");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		give_up("detach host's root");
	close(old);
}

/*
 * Makes a mount namespace with the stager's root as its root. The daemon has put
 * the stager into a chroot, which does not confine the supervisor's children:
 * the namespace's root would still be the host's, and setns(2) or an app's
 * CAP_SYS_CHROOT would lead there. The daemon's later mounts still appear in the
 * namespace; its own mounts and unmounts do not appear outside, but what is mounted in a volume
 * does where the daemon shares the volume with the host: an app may be meant to
 * mount there. The supervisor itself mounts nothing in volumes.
 */
void enter_mount_namespace(void)
{
	char path[PATH_MAX];
	int root, own, volumes, old;

	if (unshare(CLONE_NEWNS) < 0)
		give_up("make mount namespace");
	/* Not before: an open directory stays in the namespace it was opened in. */
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	/* Joining a mount namespace leads to its root, one's own included (setns(2)). */
	if (root < 0 || own < 0 || setns(own, CLONE_NEWNS) < 0)
		give_up("leave chroot");
	/* Without volumes, or on a kernel without the call, there is nothing to share. */
	volumes = (int)syscall(SYS_open_tree, root, VOLUMES_DIR + 1, TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC);
	if (mount("", "/", "", MS_SLAVE | MS_REC, NULL) < 0)
		give_up("make mounts slaves of the stager's");
	if (volumes >= 0) {
		if (syscall(SYS_move_mount, volumes, "", root, VOLUMES_DIR + 1, FROM_DESCRIPTOR) < 0)
			give_up("mount volumes");
		close(volumes);
	}
	if (fchdir(root) < 0 || getcwd(path, sizeof(path)) == NULL)
		give_up("find root");
	close(root);
	close(own);
	if (strcmp(path, "/") == 0)
		return; /* the daemon has done it already */
	old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (old < 0 || mount(path, path, "", MS_BIND | MS_REC, NULL) < 0 || chdir(path) < 0)
		give_up("make root a mount point");
	/* From here on the working directory is the new root. */
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		detach(old);
	} else if (errno == EINVAL) {
		/* The host runs from its initial RAM disk, which cannot be moved
		 * away; to be mounted over hides it as well. */
		if (mount(path, "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0)
			give_up("move root");
		close(old);
	} else {
		give_up("pivot root");
	}
}
