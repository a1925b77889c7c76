/*
 * The child by which the direct runtime starts a process; direct.c says what it does, direct.go decides it.
 *
 * The plan is in the memory that the child has of the supervisor, and is read once, from start to end:
 *
 *	struct direct_plan
 *	int32_t            files[nfiles]   the child's descriptors 0, 1, 2 and so on, by their numbers in the supervisor
 *	struct direct_op   ops[nops]       aligned
 *	char               strings[], each ended by NUL: the session keyring's name, the SELinux label or nothing, then
 *	                   source and target of each operation
 *
 * Descriptors in the plan are indices of files. Those from shim on are the shim's (enum shim_file).
 */
#ifndef STAGER_DIRECT_H
#define STAGER_DIRECT_H

#include <stdint.h>

enum direct_kind {
	DIRECT_ATTACH = 1, /* attach the detached mount file to target */
	DIRECT_COPY,       /* attach a copy of the mounts at source to target, with the attributes set */
	DIRECT_MASK,       /* hide target, if it is there: a folder by the mount other, anything else by the mount file */
	DIRECT_PROC,       /* attach a new /proc of the child's PID namespace; source is its hidepid, or nothing */
	DIRECT_MAKE,       /* make the folder target, if it is missing */
	DIRECT_RESTRICT,   /* set the attributes of the mount file, which is attached by now */
};

enum direct_flags {
	DIRECT_FOLDER = 1,  /* make target, a folder, if it is missing */
	DIRECT_FILE = 2,    /* likewise, an empty file */
	DIRECT_IF_THERE = 4, /* do nothing if target is missing */
	DIRECT_NO_LINKS = 8, /* follow no link to target */
};

struct direct_op {
	uint32_t kind, flags;
	uint32_t file, other;
	uint64_t set; /* attributes, as in mount_setattr(2) */
};

enum direct_plan_flags {
	DIRECT_TERMINAL = 1, /* descriptor 0 becomes the controlling terminal */
	DIRECT_OWN_PIDS = 2, /* the child is 1 of a new PID namespace */
};

struct direct_plan { /* a multiple of eight bytes */
	uint32_t nfiles, nops;
	uint32_t flags;
	uint32_t root;     /* the detached mount that becomes the root, 0 for a process in a running container */
	uint32_t ready;     /* with a root: a pipe; the shim's plan can be read when a byte comes */
	uint32_t shim;
	uint32_t cgroups, ncgroups; /* files of cgroups to enter, each by writing 0 */
	uint32_t owner;    /* user and group that make what is missing in the root; 0 for the caller's own */
	uint32_t pids;     /* the PID namespace to fork into, 0 for the caller's */
};

/*
 * Forks, into the cgroup of version 2 whose folder is the descriptor cgroup if that is not -1, and into a new mount
 * namespace if the plan has a root. The calling thread has the plan's files as 0, 1, 2 and so on, marked close-on-exec,
 * and nothing else that the child must not have. Returns the child's number, or -errno.
 */
int direct_fork(struct direct_plan *plan, int cgroup);

/* Tells the shim its first descriptor (enum shim_file), for shim_fail and shim_become; in shim.c. */
void shim_files(int first);

/* Becomes the program that the shim's plan names; in shim.c. */
void shim_become(void) __attribute__((noreturn));

#endif
