// Package translate decides how a container of the CRI becomes a pod of one app: a pod manifest and the stager's
// configuration. It reads and changes nothing. What a stager cannot do is an error here, in one line, because kubelet
// shows that line to a person.
package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/plan"

	"github.com/appc/spec/schema/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errRefused says that the stager cannot do what a configuration asks for, or that the configuration is wrong.
var errRefused = errors.New("not supported")

func refuse(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errRefused)...)
}

// Image has the facts about an image's app.
type Image struct {
	ID                  string
	Entrypoint, Command []string
	Env                 []Variable
	WorkingDir          string
	User, Group         string
	Groups              []int
	StopSignal          string
	HealthCheck         bool // has one, which is Docker's and none of Kubernetes
}

// Variable is a variable of an environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Account is a user in an image's /etc/passwd and /etc/group.
type Account struct {
	Group  string
	Groups []int
}

// MountedImage is an image that is mounted on the host.
type MountedImage struct {
	ID     string
	Source string // its root folder, or what the mount's sub-path names in it
}

// Facts are the facts that Container needs beside the configuration.
type Facts struct {
	Image Image
	// Account looks a user up in the image; ok is false for a name that is not there.
	Account func(user string) (a Account, ok bool, err error)
	// Resolve follows the symbolic links of the image on the way to a target, but for links that mounts at other resolved
	// targets cover.
	Resolve func(target string, mounted []string) (string, error)
	// Files are files of the host by their paths in every container of the sandbox.
	Files map[string]string
	// Sources are the paths of the configuration's mounts and devices on the host, without symbolic links.
	Sources map[string]string
	// Users are those of the sandbox's own user namespace; nil for the host's.
	Users *records.Users
	// Images are the images that are mounted, by the targets of their mounts.
	Images map[string]MountedImage
	// MountsBelow reports whether anything is mounted below a path of the host, and SharedMount whether it is on a mount
	// that can be shared with a container.
	MountsBelow, SharedMount func(string) bool
	// ComposedDir is the folder of the container's composed trees.
	ComposedDir string
	// Capabilities are all capabilities of the machine, and Default an app's default set.
	Capabilities, Default []string
	// SELinux says that the kernel uses it.
	SELinux bool
	// Seccomp is the text of the profile that the configuration names; nil for none.
	Seccomp []byte
	// LogPath is the log's file on the host; "" for none.
	LogPath string
	// LowestOOMScoreAdj is the lowest oom_score_adj of an app.
	LowestOOMScoreAdj int64
	// Cgroups are those of the machine.
	Cgroups Cgroups
}

// Pod is a container as a pod.
type Pod struct {
	records.Pod
	App         string
	StopSignal  int
	Limits      records.Limits
	PIDs        string         // see records.Container
	Composed    []records.Tree // mounted in Facts.ComposedDir, by their names, before the pod starts
	HostVolumes records.HostVolumes
	User        *runtimeapi.LinuxContainerUser // nil if it has names
}

// Container decides how a container becomes a pod.
func Container(c *runtimeapi.ContainerConfig, f Facts) (Pod, error) {
	name := appName(c.GetMetadata().GetName())
	p := Pod{App: name}
	if err := checkUsers(c, f.Users); err != nil {
		return p, err
	}
	if f.Seccomp != nil && !json.Valid(f.Seccomp) {
		return p, refuse("seccomp profile with invalid JSON")
	}
	env, variables, err := envOf(c, f.Image)
	if err != nil {
		return p, err
	}
	section, user, err := appSection(c, env, f)
	if err != nil {
		return p, err
	}
	p.User = user
	binds, err := bindsOf(c, f)
	if err != nil {
		return p, err
	}
	if err := resolveTargets(binds, f.Resolve); err != nil {
		return p, err
	}
	trees := treesOf(binds)
	if err := checkTrees(trees, c.GetLinux().GetSecurityContext().GetPrivileged()); err != nil {
		return p, err
	}
	volumes, mounts, rules := p.mount(trees, f)
	p.Limits, err = limitsOf(c.GetLinux().GetResources(), f.Cgroups)
	p.Limits.Quota = quotaOf(c.GetLinux().GetResources(), f.Cgroups)
	if err != nil {
		return p, err
	}
	namespaces, pids, err := namespacesOf(c.GetLinux().GetSecurityContext().GetNamespaceOptions(), f.Users)
	if err != nil {
		return p, err
	}
	p.PIDs = pids
	var word string
	if p.StopSignal, word, err = stopSignal(c.GetStopSignal(), f.Image.StopSignal); err != nil {
		return p, err
	}
	p.StagerConfig = stagerConfig(f, rules, c.GetLinux().GetSecurityContext())
	if f.LogPath != "" {
		volumes = append(volumes, podVolume{Name: logVolume, Kind: "host", Source: filepath.Dir(f.LogPath)})
	}
	app := podApp{
		Name: name, Image: podImage{f.Image.ID}, App: section, Mounts: mounts,
		ReadOnlyRootFS: c.GetLinux().GetSecurityContext().GetReadonlyRootfs(),
		Annotations:    annotationsOf(c, word, variables, f),
	}
	p.Manifest, err = json.Marshal(podManifest{
		ACVersion: "0.8.11", ACKind: "PodManifest", Apps: []podApp{app}, Volumes: volumes,
		Isolators: []isolator{{"os/linux/namespaces", namespaces}},
	})
	return p, err
}

// appName makes an app's name of a container's.
func appName(name string) string {
	text, err := types.SanitizeACName(strings.ToLower(name))
	if err != nil {
		return "app"
	}
	const most = 100
	return strings.TrimRight(text[:min(len(text), most)], "-")
}

// namespacesOf returns the namespaces of the stager's surroundings that the app shares: the sandbox's, which the server
// has the stager started in. pids is records.Container's.
func namespacesOf(
	o *runtimeapi.NamespaceOption, users *records.Users,
) (shared map[string]string, pids string, err error) {
	shared = map[string]string{"net": "host", "ipc": "host", "uts": "host"}
	if users == nil {
		shared["user"] = "host"
	}
	if o == nil {
		return shared, "", nil
	}
	switch o.GetPid() {
	case runtimeapi.NamespaceMode_CONTAINER:
		return shared, "", nil // see annotationsOf
	case runtimeapi.NamespaceMode_POD:
		pids = records.PodPIDs
	case runtimeapi.NamespaceMode_TARGET:
		if pids = o.GetTargetId(); pids == "" {
			return nil, "", refuse("PID namespace of another container without its ID")
		}
	}
	shared["pid"] = "host"
	return shared, pids, nil
}

// logVolume is the volume of the log's folder, which no app mounts.
const logVolume = "cri-log"

// stagerConfig is the stager's configuration: the pod ends with its app, and kubelet decides what is started again. The
// node's administrator and kubelet limit processes.
func stagerConfig(
	f Facts, rules volumeRules, s *runtimeapi.LinuxContainerSecurityContext,
) json.RawMessage {
	log := map[string]any{"maxFiles": 1}
	if f.LogPath != "" {
		log["path"] = "/volumes/" + logVolume + "/" + filepath.Base(f.LogPath)
	}
	return json.RawMessage(encode(map[string]any{
		"userNamespace": f.Users, // without one, namespacesOf asks for the host's
		"exitPolicy":    "all", "restart": "never", "gracePeriod": "1s", "strictIsolators": true,
		"executorVariables": false, "makeWorkingDirectory": true,
		"volumePropagation": rules.propagation, "deviceVolumes": rules.devices,
		"maskedPaths":   append([]string{}, s.GetMaskedPaths()...), // none is not the stager's own list
		"readOnlyPaths": append([]string{}, s.GetReadonlyPaths()...),
		"maxProcesses":  map[string]int{"app": 0, "pod": 0}, "log": log,
	}))
}

// execOf returns the words that are executed, as Kubernetes has it: the command overrides the image's entry point and
// command, and arguments alone override the image's command.
func execOf(c *runtimeapi.ContainerConfig, image Image) ([]string, error) {
	words := slices.Concat(image.Entrypoint, image.Command)
	switch {
	case len(c.GetCommand()) > 0:
		words = slices.Concat(c.GetCommand(), c.GetArgs())
	case len(c.GetArgs()) > 0:
		words = slices.Concat(image.Entrypoint, c.GetArgs())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, refuse("container without a command, neither its own nor the image's")
	}
	for _, word := range words {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return nil, refuse("word %q of the command with NUL or invalid UTF-8", word)
		}
	}
	return words, nil
}

// envOf returns the image's environment with the configuration's, whose last value of a name counts. The variables
// whose names appc does not allow are NAME=value.
func envOf(c *runtimeapi.ContainerConfig, image Image) (env []Variable, others []string, err error) {
	all := slices.Clone(image.Env)
	for _, v := range c.GetEnvs() {
		if !utf8.Valid(v.GetValue()) || slices.Contains(v.GetValue(), 0) {
			return nil, nil, refuse("value of environment variable %q with NUL or invalid UTF-8", v.GetKey())
		}
		if v.GetKey() == "" || strings.ContainsAny(v.GetKey(), "=\x00") {
			return nil, nil, refuse("environment variable %q: want a name without =", v.GetKey())
		}
		all = append(all, Variable{v.GetKey(), string(v.GetValue())})
	}
	env = lastOfEachName(all)
	for _, v := range env {
		if !plan.IsVariableName(v.Name) {
			others = append(others, v.Name+"="+v.Value)
		}
	}
	return slices.DeleteFunc(env, func(v Variable) bool { return !plan.IsVariableName(v.Name) }), others, nil
}

// lastOfEachName returns the variables whose names do not come again.
func lastOfEachName(all []Variable) (last []Variable) {
	seen := make(map[string]bool)
	for _, v := range slices.Backward(all) {
		if !seen[v.Name] {
			last = append(last, v)
		}
		seen[v.Name] = true
	}
	slices.Reverse(last)
	return last
}
