package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/container/containertest"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1/goinit"
	"kurma.io/stager/spec"
)

// TestMain is also the pod's init.
func TestMain(m *testing.M) {
	enterCgroup()
	if os.Getenv(names.RoleVariable) != "" {
		if err := goinit.Live(nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	containertest.Main(m)
}

func TestRuntimeConforms(t *testing.T) {
	processes := new(family)
	containertest.Run(t, "crun", func(cgroup string) spec.Runtime {
		init := goinit.New()
		if err := init.Begin(unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, nil); err != nil {
			t.Fatal(err)
		}
		return pod{&runtime{cgroup: cgroup, init: init, family: processes}}
	}, unmet())
}

// pod is a runtime with an init of its own.
type pod struct{ *runtime }

// Close implements spec.Runtime.
func (p pod) Close() error { return errors.Join(p.runtime.Close(), p.init.Close()) }

// unmet is what README.md lists.
func unmet() containertest.Unmet {
	const (
		filter  = "crun 1.8 loads the filter before it sets capabilities and the user, with the calls that the filter blocks"
		apart   = "crun makes no Landlock domain: processes with the same user and capabilities read each other"
		program = "crun looks a program up in the folders that PATH names, and in no other"
		silent  = "crun reports why it could not execute a program to the app's stderr alone"
	)
	return containertest.Unmet{
		"an empty part of PATH is the working directory":                                              program,
		"without PATH a program is looked up in /bin":                                                 program,
		"a working directory that does not exist is named":                                            "crun makes a working directory that does not exist",
		"working directory that is missing":                                                           "crun makes a working directory that does not exist",
		"a mount propagates as its spec says":                                                         "the example makes every bind a slave",
		"no mount of the runtime goes out of a shared volume":                                         "the example makes every bind a slave",
		"a mount at /dev is all of the app's /dev":                                                    "the example refuses it: crun would make its own nodes there",
		"exit code of a script without its interpreter":                                               silent,
		"a program on a volume without execution is an ExecError":                                     silent,
		"descriptors that are nil are the container's own":                                            "crun exec gives a command the null device with which it was started",
		"LISTEN_PID is the app's own number":                                                          "crun takes the environment before there is a process with a number",
		"a read-only bind keeps the flags of its source":                                              "crun sets the flags of a bind anew, without those of its source",
		"users of a file that is mounted":                                                             "crun takes numbers, which are looked up before it mounts anything",
		"seccomp: retain-set":                                                                         filter,
		"seccomp: a filter without the calls that set the user":                                       filter,
		"seccomp: a call that is newer than the filter":                                               filter + "; and its error for such a call is that of any other",
		"user 0 reads no other process":                                                               apart,
		"user 0 with CAP_SYS_PTRACE reads no other process":                                           apart,
		"user 0 with CAP_PERFMON reads no other process":                                              apart,
		"no app with CAP_SYS_PTRACE reads or changes a process that starts":                           apart,
		"an app with CAP_SYS_PTRACE reads or changes no command that starts in its own PID namespace": apart,
		"user 0 with CAP_SYS_PTRACE reaches no process outside of the pod":                            "without a Landlock domain such an app may become PID 1",
	}
}
