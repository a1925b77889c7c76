package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

// able is a spec.Support that has everything.
var able = spec.Support{
	Seccomp: true, UserNamespaces: true,
	AppArmor: true, SELinux: true, MinOOMScoreAdj: -1000, CPULimits: true, MemoryLimits: true, MemoryRequests: true, BlockLimits: spec.FullBlockLimits,
	Capabilities: append([]string{"CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"}, spec.DefaultCapabilities()...),
}

// listed reads isolators as NAME VALUE pairs.
func listed(pairs ...string) []manifest.Isolator {
	var list []manifest.Isolator
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, manifest.Isolator{Name: pairs[i], Value: json.RawMessage(pairs[i+1])})
	}
	return list
}

// app settles isolators as an app's, which must be possible.
func settled(t *testing.T, m spec.Support, pod podIsolators, list []manifest.Isolator) appIsolators {
	t.Helper()
	got, err := (Rows{}).applyAppIsolators(defaultConfig(), m, pod, list)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func without(names []string, taken ...string) []string {
	_, rest := split(names, taken)
	return rest
}

const (
	retainSet = "os/linux/capabilities-retain-set"
	removeSet = "os/linux/capabilities-remove-set"
)

func TestCapabilitySetsAreApplied(t *testing.T) {
	all := without(able.Capabilities)
	limited := spec.Support{Capabilities: without(able.Capabilities, "CAP_MKNOD", "CAP_SYS_ADMIN")}
	tests := []struct {
		name, clauses string
		machine       spec.Support
		list          []manifest.Isolator
		want          []string
		fates         []Fate
	}{
		{"default", "C-CAP-01", able, nil, spec.DefaultCapabilities(), nil},
		{"remove", "C-CAP-02", able, listed(removeSet, `{"set": ["CAP_CHOWN", "CAP_KILL"]}`), without(spec.DefaultCapabilities(), "CAP_CHOWN", "CAP_KILL"), []Fate{Enforced}},
		{"remove outside the default", "C-CAP-02", able, listed(removeSet, `{"set": ["CAP_SYS_ADMIN"]}`), spec.DefaultCapabilities(), []Fate{Enforced}},
		{"retain", "C-CAP-02", able, listed(retainSet, `{"set": ["CAP_NET_ADMIN", "CAP_CHOWN", "CAP_CHOWN"]}`), []string{"CAP_CHOWN", "CAP_NET_ADMIN"}, []Fate{Enforced}},
		{"unknown name retained", "C-CAP-03", able, listed(retainSet, `{"set": ["CAP_CHOWN", "CAP_FLY"]}`), []string{"CAP_CHOWN"}, []Fate{Modified}},
		{"unknown name removed", "C-CAP-03", able, listed(removeSet, `{"set": ["CAP_CHOWM"]}`), spec.DefaultCapabilities(), []Fate{Modified}},
		{"two remove-sets add up", "", able, listed(removeSet, `{"set": ["CAP_CHOWN"]}`, removeSet, `{"set": ["CAP_KILL"]}`), without(spec.DefaultCapabilities(), "CAP_CHOWN", "CAP_KILL"), []Fate{Enforced, Enforced}},
		{"two retain-sets add up", "", able, listed(retainSet, `{"set": ["CAP_CHOWN", "CAP_KILL"]}`, retainSet, `{"set": ["CAP_KILL", "CAP_MKNOD"]}`), []string{"CAP_CHOWN", "CAP_KILL", "CAP_MKNOD"}, []Fate{Enforced, Enforced}},
		{"default less what the stager lacks", "", limited, nil, without(spec.DefaultCapabilities(), "CAP_MKNOD"), nil},
		{"retained but not the stager's", "", limited, listed(retainSet, `{"set": ["CAP_SYS_ADMIN", "CAP_KILL"]}`), []string{"CAP_KILL"}, []Fate{Modified}},
		{"privileged", "", able, listed("os/linux/privileged", `true`), all, []Fate{Enforced}},
		{"privileged false", "", able, listed("os/linux/privileged", `false`), spec.DefaultCapabilities(), []Fate{Enforced}},
		{"privileged less some", "", able, listed(removeSet, `{"set": ["CAP_SYS_ADMIN"]}`, "os/linux/privileged", `true`), without(all, "CAP_SYS_ADMIN"), []Fate{Enforced, Enforced}},
		{"privileged with few", "", able, listed("os/linux/privileged", `true`, retainSet, `{"set": ["CAP_KILL"]}`), []string{"CAP_KILL"}, []Fate{Enforced, Enforced}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got := settled(t, test.machine, podIsolators{}, test.list)
			want, have := map[string]bool{}, map[string]bool{}
			for _, c := range test.want {
				want[c] = true
			}
			for _, c := range got.Capabilities {
				have[c] = true
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
			checkFates(t, test.fates, got.Fates)
		})
	}
}

func checkFates(t *testing.T, want []Fate, got []IsolatorFate) {
	t.Helper()
	var fates []Fate
	for _, f := range got {
		fates = append(fates, f.Fate)
		if f.Fate != Enforced && f.Why == "" {
			t.Errorf("%s is %s without a reason", f.Name, f.Fate)
		}
	}
	if diff := cmp.Diff(want, fates); diff != "" {
		t.Error(diff)
	}
}

func TestEveryAppIsolatorHasAFate(t *testing.T) {
	selinux := "os/linux/selinux-context"
	context := `{"user": "system_u", "role": "system_r", "type": "dhcpc_t", "level": "s0:c1"}`
	tests := []struct {
		name, clauses string
		list          []manifest.Isolator
		fates         []Fate
		check         func(appIsolators) bool
	}{
		{"default", "C-NNP-01", nil, nil, func(a appIsolators) bool { return !a.NoNewPrivileges }},
		{"true", "C-NNP-01", listed("os/linux/no-new-privileges", "true"), []Fate{Enforced}, func(a appIsolators) bool { return a.NoNewPrivileges }},
		{"false then true", "C-NNP-01", listed("os/linux/no-new-privileges", "false", "os/linux/no-new-privileges", "true"), []Fate{Enforced, Enforced}, func(a appIsolators) bool { return a.NoNewPrivileges }},
		{"true then false", "C-NNP-01", listed("os/linux/no-new-privileges", "true", "os/linux/no-new-privileges", "false"), []Fate{Enforced, Modified}, func(a appIsolators) bool { return a.NoNewPrivileges }},
		{"ambient", "C-CAP-01", listed(ambientSet, `{"set": ["CAP_KILL"]}`, ambientSet, `{"set": ["CAP_CHOWN", "CAP_KILL"]}`), []Fate{Enforced, Enforced}, func(a appIsolators) bool {
			return slices.Equal(a.AmbientCapabilities, []string{"CAP_CHOWN", "CAP_KILL"})
		}},
		{"ambient beyond the app's", "C-CAP-01", listed(ambientSet, `{"set": ["CAP_KILL", "CAP_CHOWN"]}`, "os/linux/capabilities-remove-set", `{"set": ["CAP_KILL"]}`), []Fate{Modified, Enforced}, func(a appIsolators) bool {
			return slices.Equal(a.AmbientCapabilities, []string{"CAP_CHOWN"}) && !slices.Contains(a.Capabilities, "CAP_KILL")
		}},
		{"default", "C-OOM-01", nil, nil, func(a appIsolators) bool { return a.OOMScoreAdj == 0 }},
		{"score", "C-OOM-01", listed("os/linux/oom-score-adj", "-999"), []Fate{Enforced}, func(a appIsolators) bool { return a.OOMScoreAdj == -999 }},
		{"shares", "C-CPU-02", listed("os/linux/cpu-shares", "262144"), []Fate{Enforced}, func(a appIsolators) bool { return a.Resources.CPUShares == 262144 }},
		{"before a request", "C-CPU-02", listed("os/linux/cpu-shares", "3", "resource/cpu", `{"request": "1"}`), []Fate{Enforced, Modified}, func(a appIsolators) bool { return a.Resources.CPUShares == 3 }},
		{"request and limit", "C-CPU-01", listed("resource/cpu", `{"request": "250m", "limit": "500m"}`), []Fate{Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{CPUQuota: 50000, CPUPeriod: 100000, CPUShares: 256}
		}},
		{"request is the limit", "C-RES-02", listed("resource/cpu", `{"limit": "2"}`), []Fate{Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{CPUQuota: 200000, CPUPeriod: 100000, CPUShares: 2048}
		}},
		{"very little", "C-CPU-01", listed("resource/cpu", `{"limit": "1m"}`), []Fate{Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{CPUQuota: 1000, CPUPeriod: 1000000, CPUShares: 2}
		}},
		{"limit of one that is replaced", "C-CPU-01", listed("resource/cpu", `{"limit": "500m"}`, "resource/cpu", `{"request": "250m"}`), []Fate{Ignored, Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{CPUShares: 256}
		}},
		{"without a request of its own", "C-CPU-02", listed("os/linux/cpu-shares", "3", "resource/cpu", `{"limit": "1"}`), []Fate{Enforced, Enforced}, func(a appIsolators) bool { return a.Resources.CPUShares == 3 }},
		{"very much requested", "C-CPU-01", listed("resource/cpu", `{"request": "1e300"}`), []Fate{Modified}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{CPUShares: 262144}
		}},
		{"request and limit of memory", "C-MEM-01", listed("resource/memory", `{"request": "1G", "limit": "2Gi"}`), []Fate{Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{MemoryRequest: 1000000000, MemoryLimit: 2 << 30}
		}},
		{"request only", "C-MEM-01", listed("resource/memory", `{"request": "1K"}`), []Fate{Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{MemoryRequest: 1000}
		}},
		{"last of several", "C-MEM-01", listed("resource/memory", `{"limit": "1Mi"}`, "resource/memory", `{"limit": "2Mi"}`), []Fate{Ignored, Enforced}, func(a appIsolators) bool {
			return a.Resources.MemoryLimit == 2<<20
		}},
		{"bandwidth and operations", "C-BLK-01", listed("resource/block-bandwidth", `{"default": true, "limit": "2M"}`, "resource/block-iops", `{"default": true, "limit": "1000"}`), []Fate{Enforced, Enforced}, func(a appIsolators) bool {
			return a.Resources == spec.Resources{BlockBandwidth: 2000000, BlockIOPS: 1000}
		}},
		{"network bandwidth of an app", "C-NBW-01", listed("resource/network-bandwidth", `{"default": true, "limit": "1G"}`), []Fate{Ignored}, func(a appIsolators) bool { return true }},
		{"profile", "C-AAP-01", listed("os/linux/apparmor-profile", `{"name": "p"}`), []Fate{Enforced}, func(a appIsolators) bool { return a.AppArmorProfile == "p" }},
		{"as a string", "C-AAP-01", listed("os/linux/apparmor-profile", `"p"`), []Fate{Enforced}, func(a appIsolators) bool { return a.AppArmorProfile == "p" }},
		{"context", "C-SEL-01", listed(selinux, context), []Fate{Enforced}, func(a appIsolators) bool { return a.SELinuxLabel == "system_u:system_r:dhcpc_t:s0:c1" }},
		{"privileged", "", listed("os/linux/privileged", "true"), []Fate{Enforced}, func(a appIsolators) bool { return a.Privileged && a.Seccomp.Kind == spec.SeccompOff }},
		{"the daemon's, without its mounts", "", listed("host/privileged", "true", "host/api-access", "true"), []Fate{Ignored, Ignored}, func(a appIsolators) bool { return !a.Privileged }},
		{"the daemon's, not asked for", "", listed("host/privileged", "false"), []Fate{Enforced}, func(a appIsolators) bool { return !a.Privileged }},
		{"unknown without a value", "C-ISO-04", listed("example.com/x", "null"), []Fate{Ignored}, func(a appIsolators) bool { return true }},
		{"unknown", "C-ISO-02", listed("example.com/x", `{"a": 1}`), []Fate{Ignored}, func(a appIsolators) bool { return true }},
		{"the pod's", "C-ISO-02", listed("os/linux/namespaces", `{"pid": "host"}`), []Fate{Ignored}, func(a appIsolators) bool { return true }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got := settled(t, able, podIsolators{}, test.list)
			checkFates(t, test.fates, got.Fates)
			if !test.check(got) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// On cgroup v2 a request is one of the app's cgroup alone, and the kernel bounds
// what it protects by those above.
func TestMemoryRequestIsEnforcedWithCgroupV2(t *testing.T) {
	clause.Covers(t, "C-MEM-01")
	v2 := able
	v2.MemoryRequests = false
	checkFates(t, []Fate{Modified}, settled(t, v2, podIsolators{}, listed("resource/memory", `{"request": "1Mi", "limit": "2Mi"}`)).Fates)
	checkFates(t, []Fate{Enforced}, settled(t, v2, podIsolators{}, listed("resource/memory", `{"limit": "2Mi"}`)).Fates)
}

// The daemon mounts what an app gets by its own isolators before the stager runs.
func TestTheDaemonsMountsDecideItsIsolators(t *testing.T) {
	list := listed("host/privileged", "true", "host/api-access", "true")
	app, err := (Rows{}).applyAppIsolators(defaultConfig(), able, podIsolators{}, list, "/hostile", "/host/proc")
	if err != nil {
		t.Fatal(err)
	}
	checkFates(t, []Fate{Enforced, Ignored}, app.Fates)
	pod, err := (Rows{}).applyPodIsolators(defaultConfig(), able, list, "/srv", "/var/lib/kurma")
	if err != nil {
		t.Fatal(err)
	}
	checkFates(t, []Fate{Ignored, Enforced}, pod.Fates)
}

func TestLabelsAreIgnoredWithoutSecurityModules(t *testing.T) {
	clause.Covers(t, "C-SEL-01", "C-AAP-01")
	if got := settled(t, spec.Support{MinOOMScoreAdj: 300}, podIsolators{}, nil); got.OOMScoreAdj != 300 {
		t.Errorf("got oom_score_adj %d, where 300 is the lowest that may be set", got.OOMScoreAdj)
	}
	poor := spec.Support{MinOOMScoreAdj: -5, Capabilities: spec.DefaultCapabilities()}
	got := settled(t, poor, podIsolators{}, listed(
		"os/linux/apparmor-profile", `"p"`,
		"os/linux/selinux-context", `{"user": "u", "role": "r", "type": "t", "level": "l"}`,
		"os/linux/oom-score-adj", "-6",
		"os/linux/cpu-shares", "512",
		"resource/cpu", `{"limit": "1"}`,
		"resource/memory", `{"limit": "64Mi"}`))
	checkFates(t, []Fate{Ignored, Ignored, Modified, Ignored, Ignored, Ignored}, got.Fates)
	if got.AppArmorProfile != "" || got.SELinuxLabel != "" || got.OOMScoreAdj != -5 || got.Resources != (spec.Resources{}) {
		t.Errorf("got %+v", got)
	}
}

const (
	seccompRetainSet = "os/linux/seccomp-retain-set"
	seccompRemoveSet = "os/linux/seccomp-remove-set"
)

func TestSeccompSetsBecomeFilters(t *testing.T) {
	keyrings := []string{"add_key", "keyctl", "request_key"}
	set := func(retain bool, errno syscall.Errno, calls ...string) spec.Seccomp {
		if !retain {
			calls = slices.Sorted(slices.Values(append(calls, keyrings...)))
		}
		return spec.Seccomp{Kind: spec.SeccompSet, Set: spec.SyscallSet{Retain: retain, Syscalls: calls, Errno: errno}}
	}
	tests := []struct {
		name, clauses string
		list          []manifest.Isolator
		want          spec.Seccomp
		fate          []Fate
	}{
		{"none", "C-SEC-06", nil, spec.Seccomp{}, nil},
		{"remove, errno", "C-SEC-01", listed(seccompRemoveSet, `{"errno": "ENOTSUP", "set": ["reboot", "clock_settime", "reboot"]}`), set(false, syscall.ENOTSUP, "clock_settime", "reboot"), []Fate{Enforced}},
		{"remove, end the app", "C-SEC-01", listed(seccompRemoveSet, `{"errno": "", "set": ["reboot"]}`), set(false, 0, "reboot"), []Fate{Enforced}},
		{"retain", "C-SEC-02", listed(seccompRetainSet, `{"errno": "EPERM", "set": ["read"]}`), set(true, syscall.EPERM, "read"), []Fate{Enforced}},
		{"remove a call of keyrings", "C-SEC-01", listed(seccompRemoveSet, `{"set": ["keyctl"]}`), spec.Seccomp{Kind: spec.SeccompSet, Set: spec.SyscallSet{Syscalls: keyrings}}, []Fate{Enforced}},
		{"retain calls of keyrings", "C-SEC-02", listed(seccompRetainSet, `{"set": ["read", "keyctl"]}`), set(true, 0, "keyctl", "read"), []Fate{Enforced}},
		{"all", "C-SEC-03", listed(seccompRetainSet, `{"set": ["read", "@appc.io/all"]}`), set(false, syscall.EPERM), []Fate{Modified}},
		{"all, errno", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@appc.io/all"], "errno": "ENOSYS"}`), set(false, syscall.ENOSYS), []Fate{Modified}},
		{"all, unknown errno", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@appc.io/all"], "errno": "EFOO"}`), set(false, syscall.EPERM), []Fate{Modified}},
		{"all and a call by name", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@appc.io/all", "keyctl"]}`), spec.Seccomp{
			Kind: spec.SeccompSet, Set: spec.SyscallSet{Syscalls: []string{"add_key", "request_key"}, Errno: syscall.EPERM},
		}, []Fate{Modified}},
		{"all and every call by name", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@appc.io/all", "keyctl", "add_key", "request_key"]}`), spec.Seccomp{Kind: spec.SeccompOff}, []Fate{Enforced}},
		{"empty", "C-SEC-03", listed(seccompRemoveSet, `{"set": ["@appc.io/empty", "read"]}`), spec.Seccomp{Kind: spec.SeccompDefault}, []Fate{Enforced}},
		{"unknown wildcard beside others", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@x/y", "read"]}`), set(true, 0, "read"), []Fate{Modified}},
		{"unknown wildcard alone", "C-SEC-03", listed(seccompRetainSet, `{"set": ["@docker/default-whitelist"]}`), spec.Seccomp{Kind: spec.SeccompDefault}, []Fate{Ignored}},
		{"misspelt beside others", "C-SEC-03", listed(seccompRemoveSet, `{"set": ["rebot", "reboot"]}`), set(false, 0, "reboot"), []Fate{Modified}},
		{"misspelt alone", "C-SEC-03", listed(seccompRemoveSet, `{"set": ["rebot"]}`), spec.Seccomp{Kind: spec.SeccompDefault}, []Fate{Ignored}},
		{"of another spec.Support", "C-SEC-03", listed(seccompRemoveSet, `{"set": ["arm_fadvise64_64"]}`), set(false, 0, "arm_fadvise64_64"), []Fate{Enforced}},
		{"unknown errno", "C-SEC-04", listed(seccompRemoveSet, `{"errno": "EFOO", "set": ["read"]}`), set(false, 0, "read"), []Fate{Modified}},
		{"the default, for a privileged app", "", listed("os/linux/privileged", "true", seccompRemoveSet, `{"set": ["@appc.io/empty"]}`), spec.Seccomp{Kind: spec.SeccompDefault}, []Fate{Enforced, Enforced}},
		{"misspelt by a privileged app", "", listed("os/linux/privileged", "true", seccompRemoveSet, `{"set": ["rebot"]}`), spec.Seccomp{Kind: spec.SeccompOff}, []Fate{Enforced, Ignored}},
		{"asked for by a privileged app", "", listed("os/linux/privileged", "true", seccompRemoveSet, `{"set": ["reboot"]}`), set(false, 0, "reboot"), []Fate{Enforced, Enforced}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got := settled(t, able, podIsolators{}, test.list)
			if diff := cmp.Diff(test.want, got.Seccomp); diff != "" {
				t.Error(diff)
			}
			checkFates(t, test.fate, got.Fates)
		})
	}
}

// The names are all of POSIX.1-2001 and C99, and Linux's own.
func TestEveryErrnoIsKnown(t *testing.T) {
	clause.Covers(t, "C-SEC-04")
	posix := `E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBADMSG EBUSY ECANCELED ECHILD
		ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDESTADDRREQ EDOM EDQUOT EEXIST EFAULT EFBIG EHOSTUNREACH EIDRM EILSEQ
		EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR ELOOP EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENETDOWN ENETRESET
		ENETUNREACH ENFILE ENOBUFS ENODATA ENODEV ENOENT ENOEXEC ENOLCK ENOLINK ENOMEM ENOMSG ENOPROTOOPT ENOSPC ENOSR ENOSTR
		ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENOTSOCK ENOTSUP ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EPERM EPIPE EPROTO EPROTONOSUPPORT
		EPROTOTYPE ERANGE EROFS ESPIPE ESRCH ESTALE ETIME ETIMEDOUT ETXTBSY EWOULDBLOCK EXDEV EXFULL EDEADLOCK EOWNERDEAD EHWPOISON`
	for _, name := range strings.Fields(posix) {
		if errno, known := errnoOf(name); !known || errno == 0 {
			t.Errorf("%s is not known", name)
		}
	}
	for name, want := range map[string]syscall.Errno{"EAGAIN": 11, "EWOULDBLOCK": 11, "EDEADLK": 35, "ENOTSUP": 95, "EOPNOTSUPP": 95, "EXFULL": 54, "EMULTIHOP": 72} {
		if errno, _ := errnoOf(name); errno != want {
			t.Errorf("%s is %d, want %d", name, errno, want)
		}
	}
}

func TestWrongIsolatorsAreRefused(t *testing.T) {
	tests := []struct {
		name, clauses string
		list          []manifest.Isolator
		want          string
	}{
		{"both sets", "C-CAP-02", listed(retainSet, `{"set": ["CAP_CHOWN"]}`, removeSet, `{"set": ["CAP_KILL"]}`), "must not be used together"},
		{"both sets, other order", "C-CAP-02", listed(removeSet, `{"set": ["CAP_KILL"]}`, retainSet, `{"set": ["CAP_CHOWN"]}`), "must not be used together"},
		{"empty set", "C-CAP-03", listed(retainSet, `{"set": []}`), `isolator os/linux/capabilities-retain-set: {"set":[]}: must be an object with a set`},
		{"no set", "C-CAP-03", listed(removeSet, `{}`), "set that is not empty"},
		{"a list", "C-CAP-03", listed(removeSet, `["CAP_CHOWN"]`), "set that is not empty"},
		{"both sets", "C-SEC-05", listed(seccompRetainSet, `{"set": ["read"]}`, seccompRemoveSet, `{"set": ["reboot"]}`), "must not be used together"},
		{"both sets, masked", "C-SEC-05", listed(seccompRetainSet, `{"set": ["@appc.io/all"]}`, seccompRemoveSet, `{"set": ["reboot"]}`), "must not be used together"},
		{"twice", "C-SEC-05", listed(seccompRetainSet, `{"set": ["read"]}`, seccompRetainSet, `{"set": ["write"]}`), "given twice"},
		{"empty set", "C-SEC-05", listed(seccompRetainSet, `{"set": []}`), "set that is not empty"},
		{"lower case", "C-SEC-04", listed(seccompRemoveSet, `{"errno": "eperm", "set": ["read"]}`), "errno"},
		{"out of range", "C-OOM-01", listed("os/linux/oom-score-adj", "1001"), "from -1000 to 1000"},
		{"a string", "C-OOM-01", listed("os/linux/oom-score-adj", `"1"`), "from -1000 to 1000"},
		{"twice", "C-OOM-01", listed("os/linux/oom-score-adj", `1`, "os/linux/oom-score-adj", `2`), "given twice"},
		{"too few", "C-CPU-02", listed("os/linux/cpu-shares", "1"), "from 2 to 262144"},
		{"too many", "C-CPU-02", listed("os/linux/cpu-shares", "262145"), "from 2 to 262144"},
		{"a string", "C-NNP-01", listed("os/linux/no-new-privileges", `"true"`), "true or false"},
		{"privileged an object", "", listed("os/linux/privileged", `{}`), "true or false"},
		{"default", "C-CPU-01", listed("resource/cpu", `{"default": true, "limit": "1"}`), "default must be false"},
		{"nothing", "C-CPU-01", listed("resource/cpu", `{}`), "a request, a limit or both"},
		{"zero", "C-CPU-01", listed("resource/cpu", `{"limit": 0}`), "limit must be above 0"},
		{"too much", "C-CPU-01", listed("resource/cpu", `{"limit": "1e12"}`), "a million cores"},
		{"request above limit", "C-RES-02", listed("resource/memory", `{"request": "2", "limit": "1"}`), "request must not be above limit"},
		{"bad quantity", "C-RES-01", listed("resource/memory", `{"limit": "1 GB"}`), `isolator resource/memory: {"limit":"1 GB"}: limit must be a quantity`},
		{"negative", "C-MEM-01", listed("resource/memory", `{"limit": "-1"}`), "limit must be above 0"},
		{"not default", "C-BLK-01", listed("resource/block-iops", `{"limit": "1"}`), "default must be true"},
		{"request", "C-BLK-01", listed("resource/block-bandwidth", `{"default": true, "request": "1", "limit": "1"}`), "request must be absent"},
		{"no limit", "C-NBW-01", listed("resource/network-bandwidth", `{"default": true}`), "limit must be present"},
		{"colon", "C-SEL-01", listed("os/linux/selinux-context", `{"user": "a:b", "role": "r", "type": "t", "level": "l"}`), "colons"},
		{"nothing", "C-AAP-01", listed("os/linux/apparmor-profile", `{}`), "profile's name"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			_, err := (Rows{}).applyAppIsolators(defaultConfig(), able, podIsolators{}, test.list)
			wantError(t, err, "isolator ", test.want)
		})
	}
}

func TestStrictIsolatorsRefuseIgnoredOnes(t *testing.T) {
	clause.Covers(t, "C-ISO-03")
	strict := defaultConfig()
	strict.StrictIsolators = true
	_, err := (Rows{}).applyAppIsolators(strict, able, podIsolators{}, listed("example.com/x", "1"))
	wantError(t, err, `"example.com/x" would be ignored`, "strictIsolators")
	_, err = (Rows{}).applyPodIsolators(strict, able, listed("example.com/x", "1"))
	wantError(t, err, `"example.com/x" would be ignored`, "strictIsolators")
	if _, err := (Rows{}).applyAppIsolators(strict, able, podIsolators{}, listed("os/linux/cpu-shares", "5")); err != nil {
		t.Error(err)
	}
}

func TestThePodBoundsItsApps(t *testing.T) {
	clause.Covers(t, "C-ISO-01")
	pod, err := (Rows{}).applyPodIsolators(defaultConfig(), able, listed(
		"resource/memory", `{"limit": "64Mi"}`,
		"resource/cpu", `{"limit": "500m"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Resources{MemoryLimit: 64 << 20, MemoryRequest: 64 << 20, CPUQuota: 50000, CPUPeriod: 100000, CPUShares: 512}
	if pod.Resources != want {
		t.Errorf("got %+v, want %+v", pod.Resources, want)
	}
	app := settled(t, able, pod, listed(
		"resource/memory", `{"limit": "256Mi"}`,
		"resource/cpu", `{"limit": "1"}`))
	checkFates(t, []Fate{Modified, Modified}, app.Fates)
	want.CPUShares = 1024
	if app.Resources != want {
		t.Errorf("got %+v, want %+v", app.Resources, want)
	}
	app = settled(t, able, pod, listed("resource/memory", `{"limit": "1Mi"}`, "resource/cpu", `{"limit": "5m"}`))
	checkFates(t, []Fate{Enforced, Enforced}, app.Fates)
	if app := settled(t, able, pod, nil); app.Resources != (spec.Resources{}) {
		t.Errorf("an app without isolators got %+v", app.Resources)
	}
}

func TestEveryPodIsolatorHasAFate(t *testing.T) {
	tests := []struct {
		name, clauses string
		list          []manifest.Isolator
		want          podIsolators
		fates         []Fate
	}{
		{"none", "", nil, podIsolators{}, nil},
		{"namespaces", "", listed("os/linux/namespaces", `{"net": "host"}`), podIsolators{Namespaces: Namespaces{HostNet: true}}, []Fate{Enforced}},
		{"an app's", "", listed("os/linux/cpu-shares", `3`), podIsolators{}, []Fate{Ignored}},
		{"unknown", "", listed("x", `3`), podIsolators{}, []Fate{Ignored}},
		{"context", "C-SEL-01", listed("os/linux/selinux-context", `{"user": "u", "role": "r", "type": "t", "level": "l"}`), podIsolators{SELinuxLabel: "u:r:t:l"}, []Fate{Enforced}},
		{
			"allowed variables", "C-SYS-01", listed("os/unix/sysctl", `{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shmmax": "1"}`),
			podIsolators{Sysctl: map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shmmax": "1"}},
			[]Fate{Enforced},
		},
		{
			"forbidden", "C-SYS-01", listed("os/unix/sysctl", `{"kernel.panic": "1", "vm.swappiness": "1", "net/../kernel/panic": "1", "net..kernel.panic": "1", "net.": "1", "fs.mqueue.msg_max": "1"}`),
			podIsolators{Sysctl: map[string]string{"fs.mqueue.msg_max": "1"}},
			[]Fate{Modified},
		},
		{"all forbidden", "C-SYS-01", listed("os/unix/sysctl", `{"kernel.panic": "1"}`), podIsolators{Sysctl: map[string]string{}}, []Fate{Ignored}},
		{
			"of the host's network", "C-SYS-01", listed("os/unix/sysctl", `{"net.core.somaxconn": "1"}`, "os/linux/namespaces", `{"net": "host"}`),
			podIsolators{Sysctl: map[string]string{}, Namespaces: Namespaces{HostNet: true}},
			[]Fate{Ignored, Enforced},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got, err := (Rows{}).applyPodIsolators(defaultConfig(), able, test.list)
			if err != nil {
				t.Fatal(err)
			}
			checkFates(t, test.fates, got.Fates)
			got.Fates = nil
			if diff := cmp.Diff(test.want, got, cmp.Options{}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPrivilegedNamesWhatTheStagerLacks(t *testing.T) {
	clause.Covers(t, "C-ISO-02")
	lacking := able
	lacking.Withheld = []string{"CAP_PERFMON", "/sys/fs/cgroup"}
	got := settled(t, lacking, podIsolators{}, listed("os/linux/privileged", `true`))
	want := []IsolatorFate{{"os/linux/privileged", Modified, "the stager lacks, and so cannot grant: CAP_PERFMON, /sys/fs/cgroup"}}
	if diff := cmp.Diff(want, got.Fates); diff != "" {
		t.Error(diff)
	}
	checkFates(t, []Fate{Enforced}, settled(t, lacking, podIsolators{}, listed("os/linux/privileged", `false`)).Fates)
}

func TestWrongPodIsolatorsAreRefused(t *testing.T) {
	tests := []struct {
		name, clauses string
		list          []manifest.Isolator
		want          []string
	}{
		{"unknown namespace", "", listed("os/linux/namespaces", `{"cgroup": "host"}`), []string{"os/linux/namespaces", `"cgroup"`}},
		{"namespaces twice", "", listed("os/linux/namespaces", `{}`, "os/linux/namespaces", `{}`), []string{"os/linux/namespaces", "given twice"}},
		{"a number", "C-SYS-01", listed("os/unix/sysctl", `{"kernel.shmmax": 1}`), []string{"os/unix/sysctl", "object of strings"}},
		{"twice", "C-SYS-01", listed("os/unix/sysctl", `{}`, "os/unix/sysctl", `{}`), []string{"given twice"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			_, err := (Rows{}).applyPodIsolators(defaultConfig(), able, test.list)
			wantError(t, err, test.want...)
		})
	}
}

// An app's context overrides the pod's.
func TestLabelOfTheAppOverridesThePods(t *testing.T) {
	clause.Covers(t, "C-SEL-01", "C-AAP-01")
	pod := podIsolators{SELinuxLabel: "pod", AppArmorProfile: "pod"}
	if got := settled(t, able, pod, nil); got.SELinuxLabel != "pod" || got.AppArmorProfile != "pod" {
		t.Errorf("got %+v", got)
	}
	got := settled(t, able, pod, listed("os/linux/selinux-context", `{"user": "u", "role": "r", "type": "t", "level": "l"}`, "os/linux/apparmor-profile", `"app"`))
	if got.SELinuxLabel != "u:r:t:l" || got.AppArmorProfile != "app" {
		t.Errorf("got %+v", got)
	}
}
