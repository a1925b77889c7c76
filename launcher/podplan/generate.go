package podplan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// Generate returns the pod manifest with which run, and the plan's Options, plans the pod of a plan again. Volumes are
// those of the Planner.
func Generate(plan pods.Plan, named Volumes) (map[string]any, error) {
	whole, isObject := objectOf(plan.Manifest)
	pod, hasPod := whole["pod"].(map[string]any)
	if !isObject || !hasPod {
		return nil, fmt.Errorf("pod %q: its plan has no manifest", plan.Name)
	}
	m, err := manifest.Read(bytes.NewReader(plan.Manifest))
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", plan.Name, err)
	}
	withoutHosts(pod, plan)
	if apps := listIn(pod, "apps"); plan.Image != "" && len(apps) == 1 {
		app := apps[0].(map[string]any)
		app["image"] = map[string]any{"name": plan.Image}
		if annotations := listIn(app, "annotations"); annotations != nil {
			app["annotations"] = slices.DeleteFunc(annotations, isTerminalSize) // of the terminal of the run
		}
	}
	for _, volume := range volumesIn(pod) {
		source, _ := volume["source"].(string)
		if name, ok := named.NameOf(source); ok && volume["kind"] == "host" {
			volume["kind"], volume["source"] = namedKind, name
		}
	}
	ports, err := publishedPorts(plan, m)
	if err != nil {
		return nil, fmt.Errorf("pod %q: %w", plan.Name, err)
	}
	if len(ports) > 0 {
		pod["ports"] = append(listIn(pod, "ports"), ports...)
	}
	return pod, nil
}

func isTerminalSize(annotation any) bool {
	a, _ := annotation.(map[string]any)
	return a["name"] == names.TTYSizeAnnotation
}

// publishedPorts returns the ports of the pod that its manifest does not have, as it would have them.
func publishedPorts(plan pods.Plan, m *manifest.Manifest) (ports []any, err error) {
	own, err := portMappings(m)
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool)
	for name := range appPorts(m) {
		taken[name.String()] = true
	}
	for _, port := range m.Pod.Ports {
		taken[port.Name.String()] = true
	}
	for _, p := range plan.Ports {
		if slices.Contains(own, p) {
			continue
		}
		name := freeName(fmt.Sprint("published-", p.HostPort), func(name string) bool { return taken[name] })
		taken[name] = true
		port := map[string]any{
			"name": name, "hostPort": p.HostPort,
			"podPort": map[string]any{"name": name, "protocol": p.Protocol, "port": p.ContainerPort},
		}
		if p.HostIP != "" {
			port["hostIP"] = p.HostIP
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// runOptions returns the options of run that no field of a manifest has, as words of a command line.
func (o Options) runOptions() []string {
	var words []string
	for _, option := range [][2]string{
		{"--exit-policy", o.ExitPolicy},
		{"--restart", o.Restart},
		{"--stop-timeout", strings.TrimSuffix(o.GracePeriod, "s")},
	} {
		if option[1] != "" {
			words = append(words, option[:]...)
		}
	}
	if o.NoNetwork {
		words = append(words, "--net", networks.NoneName)
	}
	for _, r := range o.Networks {
		words = append(words, "--net", r.String())
	}
	for _, server := range o.NameServers {
		words = append(words, "--dns", server)
	}
	for _, host := range o.AddHosts {
		words = append(words, "--add-host", host.Name+":"+host.Address.String())
	}
	return words
}

// Differs reports whether the stagerConfig of a planned pod has a key with this value, in JSON, while the stagerConfig
// of other pods has another value or none.
func Differs(plan pods.Plan, configured json.RawMessage, key, value string) (bool, error) {
	m, err := manifest.Read(bytes.NewReader(plan.Manifest))
	if err != nil {
		return false, fmt.Errorf("pod %q: %w", plan.Name, err)
	}
	own, err := readConfig(m.StagerConfig)
	if err != nil {
		return false, err
	}
	others, err := readConfig(configured)
	return string(own[key]) == value && string(others[key]) != value, err
}
