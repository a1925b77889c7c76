package container

// #cgo CFLAGS: -Wall -Wextra -Werror -O2 -I${SRCDIR}/../internal/c -I${SRCDIR}/../pid1
// #cgo LDFLAGS: -static
// #include "child.h"
// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	_ "kurma.io/stager/internal/c" // the C files include its headers
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// A program with this package is linked statically, because it is executed inside containers,
// which may have no dynamic loader.
//
// libcontainer executes this program again in place of the app, from a read-only descriptor; pid1/shim.c is a
// constructor, so it takes control before the Go runtime starts. The child of a direct start calls it. It does
// what libcontainer cannot do, or is slow to do:
//
//   - it makes the cgroup namespace and attaches the cgroups;
//   - it enters a Landlock domain;
//   - it loads a filter that was compiled once for the pod. It does so after setuid, setgroups
//     and capset, so that a filter that blocks those calls works, and without no_new_privs;
//   - it looks the program up by appc's rules.
//
// shim.h describes the plan and the report.

// Flags of a plan.
const (
	shimNoNewPrivs  = C.SHIM_NO_NEW_PRIVS
	shimLandlock    = C.SHIM_LANDLOCK
	shimOwnStdio    = C.SHIM_OWN_STDIO
	shimListenPID   = C.SHIM_LISTEN_PID
	shimJoin        = C.SHIM_JOIN
	shimJoinCgroups = C.SHIM_JOIN_CGROUPS
	shimNewCgroups  = C.SHIM_NEW_CGROUPS
	shimJoinUsers   = C.SHIM_JOIN_USERS
)

// The shim's descriptors, as offsets from the first one.
const (
	shimProgram  = C.SHIM_PROGRAM
	shimPlanFile = C.SHIM_PLAN
	shimReport   = C.SHIM_REPORT
	shimUsers    = C.SHIM_USERS
)

// shimPlan says what the shim does, as plain data.
type shimPlan struct {
	flags      uint32
	bounding   uint64
	ambient    uint64
	uid, gid   uint32
	owner      uint32 // the supervisor's number of uid
	groups     []uint32
	filter     *filter
	dir        string
	profile    string // AppArmor, "" for none
	candidates []string
	args, env  []string
	targets    []string // of the trees
	nfds       uint32
	nbacking   uint32
	ncgroups   uint32
	oomScore   int32
	memlock    unix.Rlimit
}

// encode returns the plan in the format of shim.h. A string with a NUL byte, which execve(2)
// cannot take, is an error that names the string.
func (p *shimPlan) encode() ([]byte, error) {
	var filter []byte
	if p.filter != nil {
		filter = p.filter.program
	}
	var text []byte
	profile := p.profile
	if profile != "" {
		profile = "exec " + profile
	}
	for _, list := range [][]string{{p.dir, profile}, p.candidates, p.args, p.env, p.targets} {
		var err error
		if text, err = appendStrings(text, list); err != nil {
			return nil, err
		}
	}
	header := C.struct_shim_plan{
		magic: C.SHIM_MAGIC, flags: C.uint32_t(p.flags), bounding: C.uint64_t(p.bounding), ambient: C.uint64_t(p.ambient),
		uid: C.uint32_t(p.uid), gid: C.uint32_t(p.gid), owner: C.uint32_t(p.owner),
		ngroups: C.uint32_t(len(p.groups)), nfilter: C.uint32_t(len(filter) / unix.SizeofSockFilter),
		ncandidates: C.uint32_t(len(p.candidates)), nargs: C.uint32_t(len(p.args)),
		nenv: C.uint32_t(len(p.env)), nfds: C.uint32_t(p.nfds),
		nbacking: C.uint32_t(p.nbacking), ncgroups: C.uint32_t(p.ncgroups), ntrees: C.uint32_t(len(p.targets)),
		oom_score_adj: C.int32_t(p.oomScore),
		memlock_soft:  C.uint64_t(p.memlock.Cur), memlock_hard: C.uint64_t(p.memlock.Max),
		sigpending: spec.PendingSignals, msgqueue: spec.MessageQueueBytes,
	}
	header.size = C.uint64_t(int(unsafe.Sizeof(header)) + 4*len(p.groups) + len(filter) + len(text))
	b := C.GoBytes(unsafe.Pointer(&header), C.int(unsafe.Sizeof(header)))
	b = slices.Grow(b, int(header.size)) // the filter is some KiB
	for _, g := range p.groups {
		b = binary.NativeEndian.AppendUint32(b, g)
	}
	return append(append(b, filter...), text...), nil
}

// appendStrings adds strings to the text of a plan, each ended by NUL.
func appendStrings(text []byte, list []string) ([]byte, error) {
	for _, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("%q contains a NUL byte", s)
		}
		text = append(append(text, s...), 0)
	}
	return text, nil
}

// shimPipes are a shim's two descriptors: the plan, a memfd that the supervisor writes once the
// container's root is assembled, and the report.
type shimPipes struct {
	plan                *os.File
	report, reportChild *os.File
}

func newShimPipes() (*shimPipes, error) {
	fd, err := unix.MemfdCreate("shim plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	p := &shimPipes{plan: os.NewFile(uintptr(fd), "plan")}
	if p.report, p.reportChild, err = os.Pipe(); err != nil {
		p.plan.Close()
		return nil, err
	}
	return p, nil
}

func (p *shimPipes) close() {
	p.plan.Close()
	p.report.Close()
	p.reportChild.Close()
}

// send writes the plan. The shim must not have been executed yet.
func (p *shimPipes) send(plan *shimPlan) error {
	b, err := plan.encode()
	if err != nil {
		return err
	}
	_, err = p.plan.WriteAt(b, 0)
	return err
}

// result waits until the shim has become the app or has ended. If it has become the app, result
// returns nil.
func (p *shimPipes) result(program, dir string) error {
	step, errno, err := p.read()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("read shim's report: %w", err)
	}
	if step == C.SHIM_EXEC {
		return &spec.ExecError{Path: program, Errno: errno}
	}
	if step == C.SHIM_CHDIR {
		return fmt.Errorf("change to working directory %q: %w", dir, errno)
	}
	return fmt.Errorf("%s: %w", shimStep(step), errno)
}

// read reads a report.
func (p *shimPipes) read() (step uint32, errno syscall.Errno, err error) {
	p.reportChild.Close()
	var r C.struct_shim_report
	b := make([]byte, unsafe.Sizeof(r))
	_, err = io.ReadFull(p.report, b)
	return binary.NativeEndian.Uint32(b), syscall.Errno(binary.NativeEndian.Uint32(b[4:])), err
}

// shimStep returns the verb phrase for an error: what the shim was doing.
func shimStep(step uint32) string {
	if what, known := shimSteps[step]; known {
		return what
	}
	return fmt.Sprintf("step %d", step)
}

var shimSteps = map[uint32]string{ //nolint:gochecknoglobals // a table that is only read
	C.SHIM_READ_PLAN:      "read plan",
	C.SHIM_LIMIT:          "set resource limits",
	C.SHIM_PROFILE:        "set AppArmor profile",
	C.SHIM_CGROUP:         "enter cgroup",
	C.SHIM_CGROUPS:        "enter cgroup namespace",
	C.SHIM_OOM:            "set oom_score_adj",
	C.SHIM_MOUNTS:         "join mount namespace",
	C.SHIM_TREES:          "attach cgroups to " + names.CgroupDir + ", which must be a folder and no link",
	C.SHIM_BOUNDING:       "drop capabilities",
	C.SHIM_USER_NAMESPACE: "join user namespace",
	C.SHIM_RESTRICT:       "enter Landlock domain",
	C.SHIM_GROUPS:         "set groups",
	C.SHIM_USER:           "set user",
	C.SHIM_CAPABILITIES:   "set capabilities",
	C.SHIM_NNP:            "set no_new_privs",
	C.SHIM_FILTER:         "load seccomp filter",
	C.SHIM_DUMPABLE:       "keep other processes from reading this one",
	C.CHILD_FILES:         "take descriptors",
	C.CHILD_SESSION:       "make session",
	C.CHILD_KEYRING:       "join session keyring",
	C.CHILD_LABEL:         "set SELinux label",
	C.CHILD_ROOT:          "enter root",
	C.CHILD_OWNER:         "make files as the owner of the root",
}
