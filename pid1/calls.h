/*
 * Numbers of system calls that the headers of Debian 12 or musl do not have. They are the same on every architecture.
 * Their flags are from linux/mount.h, which cannot be included beside sys/mount.h.
 */
#ifndef STAGER_CALLS_H
#define STAGER_CALLS_H

#include <sys/syscall.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#endif
#ifndef SYS_fsopen
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif
#define TREE_CLONE 1
#define TREE_RECURSIVE 0x8000
#define FROM_DESCRIPTOR 4
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

#endif
