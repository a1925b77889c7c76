package translate

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"kurma.io/stager/plan"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// isolatorsOf returns the app's isolators.
func isolatorsOf(c *runtimeapi.LinuxContainerConfig, f Facts) ([]isolator, error) {
	s := c.GetSecurityContext()
	all := resourceIsolators(c.GetResources(), f.LowestOOMScoreAdj)
	if s.GetPrivileged() {
		all = append(all, isolator{"os/linux/privileged", true})
	} else {
		set, err := capabilities(s.GetCapabilities(), f)
		if err != nil {
			return nil, err
		}
		all = append(all, set...)
	}
	ambient, err := ambientCapabilities(s.GetCapabilities(), f)
	if err != nil {
		return nil, err
	}
	all = append(all, ambient...)
	if err := checkPaths(s); err != nil {
		return nil, err
	}
	if s.GetNoNewPrivs() {
		all = append(all, isolator{"os/linux/no-new-privileges", true})
	}
	label, err := seLinuxIsolators(s.GetSelinuxOptions(), f)
	return slices.Concat(all, label, profileIsolators(s)), err
}

// seLinuxIsolators is that of a label, none where the kernel does not use SELinux. The server knows no default for a
// part that is missing.
func seLinuxIsolators(o *runtimeapi.SELinuxOption, f Facts) ([]isolator, error) {
	parts := []string{o.GetUser(), o.GetRole(), o.GetType(), o.GetLevel()}
	switch label := strings.Join(parts, ":"); {
	case !f.SELinux || label == ":::":
		return nil, nil
	case slices.Contains(parts, ""):
		return nil, refuse("SELinux label %q: want a user, a role, a type and a level", label)
	}
	return []isolator{{"os/linux/selinux-context", map[string]string{
		"user": o.GetUser(), "role": o.GetRole(), "type": o.GetType(), "level": o.GetLevel(),
	}}}, nil
}

// checkPaths refuses what is no path to mask or to make read-only.
func checkPaths(s *runtimeapi.LinuxContainerSecurityContext) error {
	for _, p := range slices.Concat(s.GetMaskedPaths(), s.GetReadonlyPaths()) {
		if !path.IsAbs(p) || path.Clean(p) == "/" {
			return refuse("masked or read-only path %q: want an absolute path below /", p)
		}
	}
	return nil
}

// profileIsolators are those of seccomp and AppArmor. RuntimeDefault is the stager's own filter, and a file's profile
// an annotation; without a profile there is no filter, as Kubernetes has it.
func profileIsolators(s *runtimeapi.LinuxContainerSecurityContext) (all []isolator) {
	unconfined := s.GetSeccomp() == nil || s.GetSeccomp().GetProfileType() == runtimeapi.SecurityProfile_Unconfined
	if !s.GetPrivileged() && unconfined {
		everything := []string{"@appc.io/all", "add_key", "keyctl", "request_key"}
		all = append(all, isolator{"os/linux/seccomp-retain-set", map[string]any{"set": everything}})
	}
	profile := strings.TrimPrefix(s.GetApparmorProfile(), "localhost/") //nolint:staticcheck // older clients set it
	if p := s.GetApparmor(); p.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		profile = p.GetLocalhostRef()
	}
	if profile != "" && profile != "runtime/default" && profile != "unconfined" {
		all = append(all, isolator{"os/linux/apparmor-profile", map[string]string{"name": profile}})
	}
	return all
}

// capabilities returns the isolator of the default set, minus the dropped and plus the added capabilities.
// Those that are added to the ambient set are added to all sets.
func capabilities(c *runtimeapi.Capability, f Facts) ([]isolator, error) {
	adds := slices.Concat(c.GetAddCapabilities(), c.GetAddAmbientCapabilities())
	set := slices.Clone(f.Default)
	if slices.ContainsFunc(c.GetDropCapabilities(), isAll) {
		set = nil
	}
	if slices.ContainsFunc(adds, isAll) {
		set = slices.Clone(f.Capabilities)
	}
	set = undropped(set, c)
	added, err := named(adds, f)
	if err != nil {
		return nil, err
	}
	set = append(set, added...)
	slices.Sort(set)
	set = slices.Compact(set)
	if len(set) == 0 { // appc has no empty set
		return []isolator{{"os/linux/capabilities-remove-set", map[string]any{"set": f.Default}}}, nil
	}
	return []isolator{{"os/linux/capabilities-retain-set", map[string]any{"set": set}}}, nil
}

// undropped removes the capabilities that are dropped by their names.
func undropped(set []string, c *runtimeapi.Capability) []string {
	return slices.DeleteFunc(set, func(have string) bool {
		return slices.ContainsFunc(c.GetDropCapabilities(), func(name string) bool { return capability(name) == have })
	})
}

// ambientCapabilities returns the isolator of the ambient set. As in the other sets, ALL is all but those that are
// dropped.
func ambientCapabilities(c *runtimeapi.Capability, f Facts) ([]isolator, error) {
	set, err := named(c.GetAddAmbientCapabilities(), f)
	if slices.ContainsFunc(c.GetAddAmbientCapabilities(), isAll) {
		set = append(undropped(slices.Clone(f.Capabilities), c), set...)
		slices.Sort(set)
		set = slices.Compact(set)
	}
	if len(set) == 0 || err != nil {
		return nil, err
	}
	return []isolator{{"os/linux/capabilities-ambient-set", map[string]any{"set": set}}}, nil
}

// named returns the full names of capabilities, but for ALL.
func named(names []string, f Facts) (set []string, err error) {
	for _, name := range names {
		full := capability(name)
		if isAll(name) {
			continue
		}
		if !slices.Contains(f.Capabilities, full) {
			return nil, refuse("capability %q, which this machine does not have", name)
		}
		set = append(set, full)
	}
	return set, nil
}

func isAll(name string) bool { return strings.EqualFold(name, "ALL") }

// capability is the full name of a capability, which Kubernetes writes without CAP_.
func capability(name string) string {
	return "CAP_" + strings.TrimPrefix(strings.ToUpper(name), "CAP_")
}

const (
	minShares = 2
	maxShares = 262144
)

func resourceIsolators(r *runtimeapi.LinuxContainerResources, lowestScore int64) []isolator {
	var all []isolator
	if limit := r.GetMemoryLimitInBytes(); limit > 0 {
		all = append(all, isolator{"resource/memory", map[string]string{"limit": strconv.FormatInt(limit, 10)}})
	}
	if quota, period := r.GetCpuQuota(), r.GetCpuPeriod(); quota > 0 {
		if period <= 0 {
			period = defaultPeriod
		}
		millis := max(1, quota*1000/period)
		all = append(all, isolator{"resource/cpu", map[string]string{"limit": fmt.Sprintf("%dm", millis)}})
	}
	if shares := r.GetCpuShares(); shares > 0 {
		all = append(all, isolator{"os/linux/cpu-shares", max(minShares, min(shares, maxShares))})
	}
	if score := max(r.GetOomScoreAdj(), lowestScore); score != 0 {
		all = append(all, isolator{"os/linux/oom-score-adj", score})
	}
	return all
}

// stopSignal returns the signal that asks the app to end, and its name for the app's annotation, "" if the image's
// applies.
func stopSignal(asked runtimeapi.Signal, image string) (number int, annotation string, err error) {
	text := image
	if asked != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		text = strings.TrimPrefix(asked.String(), "SIGNAL_")
		text = strings.NewReplacer("MINPLUS", "MIN+", "MAXMINUS", "MAX-").Replace(text)
		annotation = text
	}
	if text == "" {
		return int(syscall.SIGTERM), "", nil
	}
	signal, ok := plan.ParseSignal(text)
	if !ok {
		return 0, "", refuse("stop signal %q", text)
	}
	return int(signal), annotation, nil
}

// Signal returns the CRI's name of a stop signal by its number, the first of several; SIGNAL_RUNTIME_DEFAULT for none.
func Signal(number int) runtimeapi.Signal {
	for _, value := range slices.Sorted(maps.Keys(runtimeapi.Signal_name)) {
		asked := runtimeapi.Signal(value)
		n, annotation, err := stopSignal(asked, "")
		if err == nil && annotation != "" && n == number {
			return asked
		}
	}
	return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
}
