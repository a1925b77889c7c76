package containertest

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

func filterCases() []testCase {
	return []testCase{
		{"seccomp: none", filterOff},
		{"seccomp: default", filterDefault},
		{"seccomp: remove-set with an errno", filterRemove},
		{"seccomp: remove-set without an errno", filterKill},
		{"seccomp: retain-set", filterRetain},
		{"seccomp: a profile", filterProfile},
		{"seccomp: a call that is newer than the filter", filterNewCall},
		{"seccomp: a filter without the calls that set the user", filterUser},
		{"seccomp: a filter does not set no_new_privs", filterPrivileges},
	}
}

// mkdir tries a call that a filter of these cases blocks.
const mkdir = "mkdir /tmp/new 2>&1; exit 0"

func printed(errno syscall.Errno) string {
	return "mkdir: can't create directory '/tmp/new': " + strings.ToUpper(errno.Error()[:1]) + errno.Error()[1:] + "\n"
}

func (b *bench) filtered(f spec.Seccomp) spec.Spec {
	s := b.spec()
	s.Process.Seccomp = f
	return s
}

func setOf(set spec.SyscallSet) spec.Seccomp { return spec.Seccomp{Kind: spec.SeccompSet, Set: set} }

// Syscalls returns the system calls that the suite's programs need, and some more, except those in
// without.
func Syscalls(without ...string) []string {
	var out []string
	for name := range strings.FieldsSeq(`access alarm arch_prctl brk capget chdir clock_gettime clock_nanosleep clone clone3 close dup dup2
		dup3 epoll_create1 exit exit_group faccessat fcntl fork fstat futex getcwd getdents64 getegid geteuid getgid getpgrp getpid
		getppid getrandom gettid getuid ioctl lseek madvise mkdir mkdirat mmap mprotect munmap newfstatat open openat pipe pipe2 poll prlimit64
		read readlink readlinkat rseq rt_sigaction rt_sigprocmask rt_sigreturn set_robust_list set_tid_address setpgid sigaltstack
		stat statx tgkill time times umask uname vfork wait4 waitid waitpid write writev`) {
		if !strings.Contains(" "+strings.Join(without, " ")+" ", " "+name+" ") {
			out = append(out, name)
		}
	}
	return out
}

// filterProfile checks rules with conditions on arguments, capabilities and architectures, and errors and actions of
// rules.
func filterProfile(b *bench) {
	profile := func(rules string) spec.Seccomp {
		return spec.Seccomp{Kind: spec.SeccompProfile, Profile: `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [` + rules + `]}`}
	}
	rule := func(action, more string) string {
		return `{"names": ["mkdir", "mkdirat"], "action": "` + action + `"` + more + `}`
	}
	errno := func(errno syscall.Errno) string {
		return rule("SCMP_ACT_ERRNO", fmt.Sprintf(`, "errnoRet": %d`, errno))
	}
	b.wantBoth(b.filtered(profile(errno(unix.ENOTEMPTY))), mkdir, printed(unix.ENOTEMPTY))
	b.wantBoth(b.filtered(profile(rule("SCMP_ACT_ERRNO", ""))), mkdir, printed(unix.EPERM))
	for _, missed := range []string{
		`, "includes": {"caps": ["CAP_SYS_BOOT"]}`, `, "excludes": {"caps": ["CAP_CHOWN"]}`, `, "includes": {"arches": ["s390x"]}`,
		`, "includes": {"minKernel": "99.0"}`,
	} {
		b.wantBoth(b.filtered(profile(rule("SCMP_ACT_ERRNO", missed))), "mkdir /tmp/new && rmdir /tmp/new", "")
	}
	caps := `, "includes": {"caps": ["CAP_CHOWN"]}, "excludes": {"caps": ["CAP_SYS_BOOT"]}`
	b.wantBoth(b.filtered(profile(rule("SCMP_ACT_ERRNO", caps))), mkdir, printed(unix.EPERM))
	kill := `{"names": ["kill"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [{"index": 1, "value": 10, "op": "SCMP_CMP_EQ"}]}`
	b.wantBoth(b.filtered(profile(kill)), "trap 'echo usr2' USR2; kill -USR1 $$ 2>/dev/null || echo no; kill -USR2 $$", "no\nusr2\n")
	for action, want := range map[string]string{"SCMP_ACT_KILL_PROCESS": "159\n", "SCMP_ACT_KILL": "159\n", "SCMP_ACT_TRAP": "159\n", "SCMP_ACT_LOG": "0\n"} {
		b.wantBoth(b.filtered(profile(rule(action, ""))), "(busybox mkdir /tmp/new; exit $?) 2>/dev/null; echo $?; rmdir /tmp/new 2>/dev/null || true", want)
	}
	b.wantBoth(b.filtered(profile("")), "echo ran", "ran\n")
}

func filterOff(b *bench) {
	b.wantBoth(b.filtered(spec.Seccomp{Kind: spec.SeccompOff}), "grep Seccomp: /proc/self/status", "Seccomp:\t0\n")
}

// filterDefault blocks a new user namespace for a process without CAP_SYS_ADMIN.
func filterDefault(b *bench) {
	s := b.filtered(spec.Seccomp{})
	b.wantBoth(s, "grep Seccomp: /proc/self/status; unshare -U true || echo blocked",
		"Seccomp:\t2\nunshare: unshare(0x10000000): Operation not permitted\nblocked\n")
}

func filterRemove(b *bench) {
	s := b.filtered(setOf(spec.SyscallSet{Syscalls: []string{"mkdir", "mkdirat", "no_such_call"}, Errno: unix.EXFULL}))
	b.wantBoth(s, mkdir, printed(unix.EXFULL))
}

func filterKill(b *bench) {
	s := b.filtered(setOf(spec.SyscallSet{Syscalls: []string{"mkdir", "mkdirat"}}))
	s.Process.Args = []string{"mkdir", "/tmp/new"}
	if r := b.run(s); r.status.Signal() != syscall.SIGSYS {
		b.t.Errorf("the app ends with status %#x, %q", r.status, r.text)
	}
	s.Process.Args = []string{"sleep", "1000"}
	if r := b.start(s, spec.Stdio{}).exec(command("mkdir", "/tmp/new")); r.status.Signal() != syscall.SIGSYS {
		b.t.Errorf("the command ends with status %#x, %q", r.status, r.text)
	}
}

func filterRetain(b *bench) {
	s := b.filtered(setOf(spec.SyscallSet{Retain: true, Syscalls: Syscalls("mkdir", "mkdirat"), Errno: unix.EXFULL}))
	b.wantBoth(s, mkdir, printed(unix.EXFULL))
}

// filterNewCall tries setns(2), whose number is above the numbers of all calls that the filter lists, and mkdir(2), whose
// number is not.
func filterNewCall(b *bench) {
	listed := Syscalls("clone3", "getrandom", "mkdir", "mkdirat", "rseq", "statx")
	s := b.filtered(spec.Seccomp{Kind: spec.SeccompProfile, Profile: `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
		{"names": ["execve", "` + strings.Join(listed, `", "`) + `"], "action": "SCMP_ACT_ALLOW"}]}`})
	b.wantBoth(s, "busybox nsenter --uts=/proc/self/ns/uts true 2>&1; "+mkdir, "nsenter: setns(): can't reassociate to namespace 'uts': Function not implemented\n"+printed(unix.EPERM))
}

func filterUser(b *bench) {
	s := b.filtered(setOf(spec.SyscallSet{Retain: true, Syscalls: Syscalls(), Errno: unix.EXFULL}))
	s.Process.User, s.Process.Group, s.Process.SupplementaryGID, s.Process.Capabilities = "1000", "1000", []int{20}, few()
	b.wantBoth(s, "exec grep -E '(Uid|Groups|CapBnd|Seccomp):' /proc/self/status",
		"Uid:\t1000\t1000\t1000\t1000\nGroups:\t20 \nCapBnd:\t0000000000000421\nSeccomp:\t2\n")
}

func filterPrivileges(b *bench) {
	for _, f := range []spec.Seccomp{{}, setOf(spec.SyscallSet{Syscalls: []string{"reboot"}})} {
		s := b.filtered(f)
		s.Process.User, s.Process.Group = "1000", "1000"
		b.wantBoth(s, "grep NoNewPrivs: /proc/self/status", "NoNewPrivs:\t0\n")
	}
}
