/*
 * What the shim gives up for the app: its capabilities, its user, its file system rights and system calls. Each
 * function either succeeds or ends the shim by shim_fail. shim.c calls them in the order of a start.
 */
#ifndef STAGER_PRIVILEGES_H
#define STAGER_PRIVILEGES_H

#include "shim.h"

#include <linux/filter.h>
#include <stdint.h>

/* Sets the AppArmor profile for the next exec, which is the app's; profile is "exec " and its name. A profile need not
 * allow what the shim does. It writes to /proc/self, of the app's root if that is the root by now. */
void confine(const char *profile);

/* Drops every capability that is not in keep. */
void drop_bounding(uint64_t keep);

/*
 * Enters a new Landlock domain, so that this process and its descendants can neither ptrace processes outside the
 * domain nor follow their /proc/PID/{root,cwd,fd,mem,environ}. The domain also denies mount(2).
 */
void restrict_self(const struct shim_plan *p);

/* Changes to the working directory, with no more than these effective capabilities. Returns 0, or the error. */
int change_directory(const char *dir, uint64_t effective);

/* Makes files as this user and group from now on, with all capabilities; 0 changes nothing. */
void make_files_as(uint32_t id);

/* Becomes the user, and keeps the ambient capabilities and the one that load_filter needs. */
void become_user(const struct shim_plan *p, const uint32_t *groups);

/* Loads a seccomp filter, unless it has no instructions. */
void load_filter(const struct sock_filter *filter, uint32_t n);

/* The shim's side (shim.c): writes the report and exits, and the descriptor of a backing folder. */
void __attribute__((noreturn)) shim_fail(uint32_t step, int error);
int shim_backing(uint32_t i);

#endif
