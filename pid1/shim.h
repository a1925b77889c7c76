/*
 * The exec shim: the container is built around it; it applies the last settings
 * and becomes the app. shim.go says what starts it and why it exists. Where it is a
 * program, it runs as a constructor, because starting the Go runtime takes ten times
 * as long as the shim's work.
 *
 * The shim reads the plan from a descriptor, once, from start to end:
 *
 *	struct shim_plan
 *	uint32_t           groups[ngroups]
 *	struct sock_filter filter[nfilter]
 *	char               strings[], each ended by NUL, in this order:
 *	                   directory, AppArmor profile, candidates, arguments, environment,
 *	                   targets of the trees
 *
 * All numbers are in the machine's byte order: both ends are the same program.
 */
#ifndef STAGER_SHIM_H
#define STAGER_SHIM_H

#include <stdint.h>

#define SHIM_MAGIC 0x53484d34u

/* The shim's descriptors, from the first one on, in this order. */
enum shim_file {
	SHIM_PROGRAM, /* this program, which no container can write to; in a direct start the plan again */
	SHIM_PLAN,
	SHIM_REPORT,
	SHIM_USERS,   /* with SHIM_JOIN_USERS the user namespace to join, else any file */
	SHIM_BACKING, /* nbacking folders; then ntrees detached mounts; then, only with SHIM_JOIN, the
	               * mount namespace and with SHIM_JOIN_CGROUPS the cgroup namespace to join, and
	               * ncgroups files of the cgroups to enter */
};

enum shim_flags {
	SHIM_NO_NEW_PRIVS = 1, /* prctl(PR_SET_NO_NEW_PRIVS) */
	SHIM_LANDLOCK = 2,     /* enter a new Landlock domain, with rules for / and the backing folders */
	SHIM_OWN_STDIO = 4,    /* make the user the owner of pipes and terminals at 0 to 2 */
	SHIM_LISTEN_PID = 8,   /* add LISTEN_PID=<own pid> to the environment */
	SHIM_JOIN = 16,        /* join a running container: its mount namespace and cgroups, and
	                        * set oom_score_adj */
	SHIM_JOIN_CGROUPS = 32, /* with SHIM_JOIN, join the cgroup namespace */
	SHIM_NEW_CGROUPS = 64, /* make a cgroup namespace, after entering the cgroups. libcontainer's init would
	                        * read all mounts of the pod if it were in one: the Go runtime looks for
	                        * the cgroup of the controller cpu among the mounts and would not find it */
	SHIM_JOIN_USERS = 128, /* join the user namespace */
};

struct shim_plan {
	uint32_t magic;
	uint32_t flags;
	uint64_t bounding; /* capability bounding set, bit N is capability N */
	uint64_t ambient;  /* ambient set, a part of bounding */
	uint32_t uid, gid;
	uint32_t ngroups;
	uint32_t nfilter;
	uint32_t ncandidates; /* paths to try in turn */
	uint32_t nargs, nenv;
	uint32_t nfds; /* descriptors from 3 on that the app keeps */
	uint32_t nbacking; /* folders of spec.Spec.Backing */
	uint32_t ncgroups; /* files of the cgroups to enter */
	uint32_t owner; /* what uid is outside the user namespace */
	uint32_t ntrees; /* detached mounts (open_tree(2)) to attach to their targets, in this order */
	int32_t oom_score_adj;
	uint64_t memlock_soft, memlock_hard; /* RLIMIT_MEMLOCK */
	uint64_t sigpending, msgqueue; /* RLIMIT_SIGPENDING and RLIMIT_MSGQUEUE, unless the limit is lower already */
	uint64_t size; /* of the whole plan in bytes */
};

/* What the shim was doing when it failed; shim.go has the text. */
enum shim_step {
	SHIM_READ_PLAN = 1,
	SHIM_LIMIT,
	SHIM_PROFILE,
	SHIM_CGROUP,
	SHIM_OOM,
	SHIM_MOUNTS,
	SHIM_CGROUPS,
	SHIM_TREES,
	SHIM_BOUNDING,
	SHIM_RESTRICT,
	SHIM_CHDIR,
	SHIM_GROUPS,
	SHIM_USER,
	SHIM_CAPABILITIES,
	SHIM_NNP,
	SHIM_FILTER,
	SHIM_EXEC,
	SHIM_DUMPABLE,
	SHIM_USER_NAMESPACE,
	/* Of a child of the direct runtime, before it is the shim (child.c). */
	CHILD_FILES,
	CHILD_SESSION,
	CHILD_KEYRING,
	CHILD_LABEL,
	CHILD_ROOT,
	CHILD_OWNER,
	CHILD_OPERATION, /* with the operation's number in the upper bits */
};

#define CHILD_SHIFT 8

/* The shim writes this to the report's descriptor on failure; end of file means success. */
struct shim_report {
	uint32_t step;
	uint32_t error;
};

#endif
