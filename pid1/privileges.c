#define _GNU_SOURCE
#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "calls.h"

/* From linux/landlock.h (5.13, REFER 5.19); Debian 12's headers have only a part of it. */
#define LANDLOCK_REFER (1ULL << 13)
#define LANDLOCK_PATH_BENEATH 1

struct landlock_ruleset { uint64_t handled_access_fs; };
struct landlock_path_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

void confine(const char *profile)
{
	int fd = open("/proc/self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);

	if (fd < 0) /* before 5.1 */
		fd = open("/proc/self/attr/exec", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, profile, strlen(profile)) < 0)
		shim_fail(SHIM_PROFILE, errno);
	close(fd);
}

void drop_bounding(uint64_t keep)
{
	int c;

	for (c = 0; c < 64; c++) {
		if (keep >> c & 1)
			continue;
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
			if (errno == EINVAL) /* the first number that the kernel does not know */
				return;
			shim_fail(SHIM_BOUNDING, errno);
		}
	}
}

/* Adds a rule that allows renames and links below a folder. */
static void allow_refer(int ruleset, int folder)
{
	struct landlock_path_beneath rule = { LANDLOCK_REFER, folder };

	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &rule, 0) < 0)
		shim_fail(SHIM_RESTRICT, errno);
}

/*
 * The domain handles one right, REFER, and allows it below the root and the backing folders, because a domain
 * without it denies renames and links between directories (landlock(7)). aufs renames files in its branches, which
 * are outside the root, with the app's credentials.
 */
void restrict_self(const struct shim_plan *p)
{
	struct landlock_ruleset rs = { LANDLOCK_REFER };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &rs, sizeof(rs), 0);
	int root = open("/", O_PATH | O_CLOEXEC);
	uint32_t i;

	if (fd < 0)
		shim_fail(SHIM_RESTRICT, errno);
	allow_refer(fd, root); /* fails without a root */
	for (i = 0; i < p->nbacking; i++)
		allow_refer(fd, shim_backing(i));
	if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		shim_fail(SHIM_RESTRICT, errno);
	close(root);
	close(fd);
}

static void set_capabilities(const struct __user_cap_data_struct *d)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };

	if (syscall(SYS_capset, &h, d) < 0)
		shim_fail(SHIM_CAPABILITIES, errno);
}

/* The kernel takes the effective capabilities over files from a user that is not 0 (capabilities(7)). */
void make_files_as(uint32_t id)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];

	if (id == 0)
		return;
	syscall(SYS_setfsgid, id);
	syscall(SYS_setfsuid, id);
	if (syscall(SYS_setfsgid, id) != (long)id || syscall(SYS_setfsuid, id) != (long)id)
		shim_fail(CHILD_OWNER, EPERM); /* they return the number before, and no error */
	if (syscall(SYS_capget, &h, d) < 0)
		shim_fail(CHILD_OWNER, errno);
	d[0].effective = d[0].permitted;
	d[1].effective = d[1].permitted;
	if (syscall(SYS_capset, &h, d) < 0)
		shim_fail(CHILD_OWNER, errno);
}

/* The kernel takes only what is permitted and inheritable. It empties the set with setuid(2), which comes before. */
static void raise_ambient(uint64_t set)
{
	int c;

	for (c = 0; c < 64; c++)
		if (set >> c & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0) < 0)
			shim_fail(SHIM_CAPABILITIES, errno);
}

/*
 * The filter comes last, so CAP_SYS_ADMIN must survive setuid(2). The exec drops it: a program without file
 * capabilities has the ambient set if the user is not root, and the bounding set if the user is root
 * (capabilities(7)).
 */
void become_user(const struct shim_plan *p, const uint32_t *groups)
{
	struct __user_cap_data_struct d[2];
	uint64_t caps = 1ULL << CAP_SYS_ADMIN | p->ambient;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		shim_fail(SHIM_CAPABILITIES, errno);
	/* The C library's functions set the IDs of all threads that it knows; a fork has one (child.c). */
	if (syscall(SYS_setgroups, p->ngroups, groups) < 0 || syscall(SYS_setresgid, p->gid, p->gid, p->gid) < 0)
		shim_fail(SHIM_GROUPS, errno);
	if (syscall(SYS_setresuid, p->uid, p->uid, p->uid) < 0)
		shim_fail(SHIM_USER, errno);
	if (p->uid == 0)
		caps |= p->bounding;
	d[0].permitted = d[0].effective = (uint32_t)caps;
	d[1].permitted = d[1].effective = (uint32_t)(caps >> 32);
	d[0].inheritable = (uint32_t)p->ambient;
	d[1].inheritable = (uint32_t)(p->ambient >> 32);
	set_capabilities(d);
	raise_ambient(p->ambient);
}

/*
 * dir can be a link of the app to /proc/1/root. To follow a link of /proc, a process needs the effective capabilities
 * of the process behind it (ptrace(2)). The shim may still have all capabilities of the supervisor; without them the
 * link fails.
 */
int change_directory(const char *dir, uint64_t effective)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct all[2], d[2];
	int error;

	if (syscall(SYS_capget, &h, all) < 0)
		shim_fail(SHIM_CAPABILITIES, errno);
	memcpy(d, all, sizeof(d));
	d[0].effective &= (uint32_t)effective;
	d[1].effective &= (uint32_t)(effective >> 32);
	set_capabilities(d);
	error = chdir(dir) < 0 ? errno : 0;
	set_capabilities(all);
	return error;
}

void load_filter(const struct sock_filter *filter, uint32_t n)
{
	struct sock_fprog prog = { (unsigned short)n, (struct sock_filter *)filter };

	if (n && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		shim_fail(SHIM_FILTER, errno);
}
