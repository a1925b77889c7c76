// crun 1.8 raises RLIMIT_MEMLOCK before it loads a policy of devices, which root without CAP_SYS_RESOURCE cannot do, and
// which the kernel has not needed since Linux 5.11. With this library crun believes that it has worked.
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	if (resource == RLIMIT_MEMLOCK)
		return 0;
	return (int)syscall(SYS_prlimit64, 0, resource, limit, NULL);
}
