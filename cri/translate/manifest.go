package translate

import (
	"cmp"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kurma.io/stager/names"
)

// podManifest has the form of appc's document.
type podManifest struct {
	ACVersion string      `json:"acVersion"`
	ACKind    string      `json:"acKind"`
	Apps      []podApp    `json:"apps"`
	Volumes   []podVolume `json:"volumes,omitempty"`
	Isolators []isolator  `json:"isolators,omitempty"`
}

type podApp struct {
	Name           string     `json:"name"`
	Image          podImage   `json:"image"`
	App            section    `json:"app"`
	ReadOnlyRootFS bool       `json:"readOnlyRootFS,omitempty"`
	Mounts         []podMount `json:"mounts,omitempty"`
	Annotations    []Variable `json:"annotations,omitempty"`
}

type podImage struct {
	ID string `json:"id"`
}

type section struct {
	Exec              []string   `json:"exec"`
	User              string     `json:"user"`
	Group             string     `json:"group"`
	SupplementaryGIDs []int      `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory  string     `json:"workingDirectory,omitempty"`
	Environment       []Variable `json:"environment,omitempty"`
	Isolators         []isolator `json:"isolators,omitempty"`
}

type podVolume struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Source   string `json:"source"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

type podMount struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

type isolator struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// appSection decides how the app's process is made.
func appSection(
	c *runtimeapi.ContainerConfig, env []Variable, f Facts,
) (section, *runtimeapi.LinuxContainerUser, error) {
	exec, err := execOf(c, f.Image)
	if err != nil {
		return section{}, nil, err
	}
	user, err := userOf(c.GetLinux().GetSecurityContext(), f)
	if err != nil {
		return section{}, nil, err
	}
	isolators, err := isolatorsOf(c.GetLinux(), f)
	if err != nil {
		return section{}, nil, err
	}
	return section{
		Exec: exec, User: user.User, Group: user.Group, SupplementaryGIDs: user.Groups,
		WorkingDirectory: cmp.Or(c.GetWorkingDir(), f.Image.WorkingDir), Environment: env, Isolators: isolators,
	}, user.status(), nil
}

// annotationsOf returns the app's annotations for its user, its health, its stdin, its terminal, its stop signal, its
// seccomp profile and its variables whose names appc does not allow.
func annotationsOf(c *runtimeapi.ContainerConfig, stopSignal string, variables []string, f Facts) []Variable {
	all := []Variable{{names.NumericIDsAnnotation, "true"}} // kubelet has judged the number, and not a name
	if f.Image.HealthCheck {
		all = append(all, Variable{names.HealthCommandAnnotation, "none"}) // probes are kubelet's
	}
	if len(variables) > 0 {
		all = append(all, Variable{names.EnvironmentAnnotation, encode(variables)})
	}
	if len(f.Seccomp) > 0 && !c.GetLinux().GetSecurityContext().GetPrivileged() {
		all = append(all, Variable{names.SeccompProfileAnnotation, string(f.Seccomp)})
	}
	options := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options == nil || options.GetPid() == runtimeapi.NamespaceMode_CONTAINER {
		all = append(all, Variable{names.OwnPIDsAnnotation, "true"})
	}
	switch {
	case c.GetStdin() && c.GetStdinOnce():
		all = append(all, Variable{names.StdinAnnotation, "once"})
	case c.GetStdin():
		all = append(all, Variable{names.StdinAnnotation, "stream"})
	}
	if c.GetTty() {
		all = append(all, Variable{names.TTYAnnotation, "true"})
	}
	if stopSignal != "" {
		all = append(all, Variable{names.StopSignalAnnotation, stopSignal})
	}
	return all
}

// encode returns a value as JSON.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it has strings and numbers only
	}
	return string(text)
}
