/*
 * The child that init forks for a start: child.c says what it does, direct.go of package container decides it.
 *
 * The plan is in a memfd, which init has mapped, and is read once, from start to end:
 *
 *	struct child_plan
 *	struct child_op   ops[nops]
 *	char              strings[], each ended by NUL: the session keyring's name, the SELinux label or nothing, then
 *	                  source and target of each operation
 *
 * Descriptors in the plan are the child's, 0 to nfiles-1. Those from shim on are the shim's (enum shim_file).
 */
#ifndef STAGER_CHILD_H
#define STAGER_CHILD_H

#include <stdint.h>
#include <sys/resource.h>

enum child_kind {
	CHILD_ATTACH = 1, /* attach the detached mount file to target */
	CHILD_COPY,       /* attach a copy of the mounts at source to target, with the attributes set */
	CHILD_MASK,       /* hide target, if it is there: a folder by the mount other, anything else by the mount file */
	CHILD_PROC,       /* attach a new /proc of the child's PID namespace; source is its hidepid, or nothing */
	CHILD_MAKE,       /* make the folder target, if it is missing */
	CHILD_RESTRICT,   /* set the attributes of the mount file, which is attached by now */
};

enum child_flags {
	CHILD_FOLDER = 1,  /* make target, a folder, if it is missing */
	CHILD_FILE = 2,    /* likewise, an empty file */
	CHILD_IF_THERE = 4, /* do nothing if target is missing */
	CHILD_NO_LINKS = 8, /* follow no link to target */
};

struct child_op {
	uint32_t kind, flags;
	uint32_t file, other;
	uint64_t set; /* attributes, as in mount_setattr(2) */
};

enum child_plan_flags {
	CHILD_TERMINAL = 1, /* descriptor 0 becomes the controlling terminal */
	CHILD_OWN_PIDS = 2, /* the child is 1 of a new PID namespace */
};

struct child_plan { /* a multiple of eight bytes */
	uint32_t nfiles, nops;
	uint32_t flags;
	uint32_t root;     /* the detached mount that becomes the root, 0 for a process in a running container */
	uint32_t ready;     /* with a root: a pipe; the shim's plan can be read when a byte comes */
	uint32_t shim;
	uint32_t cgroups, ncgroups; /* files of cgroups to enter, each by writing 0 */
	uint32_t owner;    /* user and group that make what is missing in the root; 0 for the caller's own */
	uint32_t pids;     /* the PID namespace to fork into, 0 for init's */
};

/*
 * Forks, into the cgroup of version 2 whose folder is the descriptor cgroup if that is not -1, and into a new mount
 * namespace if the plan has a root. init has the plan's files as 0, 1, 2 and so on, marked close-on-exec,
 * and the child closes all others. Returns the child's number and sets its pidfd, or returns -errno.
 */
int child_fork(struct child_plan *plan, int cgroup, int *pidfd);

/* The limit of open files that a child has: that of the daemon, not the higher one of init. */
extern struct rlimit child_open_files;

/* Tells the shim its first descriptor (enum shim_file), for shim_fail and shim_become; in shim.c. */
void shim_files(int first);

/* Becomes the program that the shim's plan names; in shim.c. */
void shim_become(void) __attribute__((noreturn));

#endif
