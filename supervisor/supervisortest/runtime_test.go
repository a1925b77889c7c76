package supervisortest

import (
	"testing"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/spec"
)

func TestMain(m *testing.M) { containertest.Main(m) }

func TestRuntimeConforms(t *testing.T) {
	containertest.Run(t, "supervisortest", func(cgroup string) spec.Runtime { return NewRuntime(cgroup) }, unmet())
}

// unmet is what the package's comment says.
func unmet() containertest.Unmet {
	unmet := containertest.Unmet{"LISTEN_PID is the app's own number": "a process's number is known when it has its environment already"}
	for reason, names := range map[string][]string{
		"it mounts nothing, so a root has no /proc and no /dev but its own": {
			"descriptors that are nil are /dev/null", "descriptors that are nil are the container's own",
			"no other descriptor is open", "files from descriptor 3 on", "a terminal",
			"signals are at their defaults", "read-only root", "bind mounts", "recursive read-only bind mounts",
			"a mount that comes later shows up", "a mount propagates as its spec says",
			"no mount of the runtime goes out of a shared volume", "flags of binds", "a read-only bind keeps the flags of its source",
			"mounts are made in order", "a linked /dev, /proc or /sys is refused", "masked and read-only paths",
			"a privileged app has no masked paths", "a privileged app writes to /sys", "device nodes", "device policy", "a mount at /dev is all of the app's /dev", "apps share /dev/shm",
			"the probe reads its own process", "pending signals and message queues are limited",
			"an app that asks for it sees no thread of the supervisor",
			"an app with CAP_SYS_ADMIN changes no mask of another app", "a neighbour that mounts and remounts disturbs no start",
			"a program on a volume without execution is an ExecError",
		},
		"it makes no namespaces": {
			"namespaces are the caller's but for mounts", "a PID namespace of the app's own", "a PID namespace ends with its app",
			"an app reads or changes no command that starts in its own PID namespace",
			"an app with CAP_SYS_PTRACE reads or changes no command that starts in its own PID namespace",
			"a command is where the app is", "an app sees no cgroup around its own",
			"user 0 reaches no process outside of the pod", "user 0 with CAP_SYS_PTRACE reaches no process outside of the pod",
			"no signal of user 0 ends PID 1", "no signal of user 0 with CAP_SYS_PTRACE ends PID 1",
		},
		"it makes no folder in a root": {"working directory that is missing"},
		"its processes have the caller's user": {
			"a user opens its pipes again", "a user or group that does not exist is named", "user and group by number", "user and group by name",
			"a name overrides a number", "user and group of a file", "users of a file that is mounted", "supplementary groups", "HOME is the user's",
		},
		"its processes have the caller's rights": {
			"Support names what the caller has", "capabilities of user 0", "capabilities of another user", "ambient capabilities", "no_new_privs",
			"seccomp: none", "user 0 reads no other process",
			"user 0 without capabilities reads no other process", "another user reads no other process",
			"user 0 with CAP_SYS_PTRACE reads no other process", "user 0 with CAP_PERFMON reads no other process",
			"no app reads or changes a process that starts", "no app with CAP_SYS_PTRACE reads or changes a process that starts",
		},
		"its processes have the caller's oom_score_adj": {"oom_score_adj"},
	} {
		for _, name := range names {
			unmet[name] = reason
		}
	}
	return unmet
}
