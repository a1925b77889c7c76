package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"
)

// CNI connects sandboxes by CNI's plugins.
type CNI struct {
	ConfigDir  string
	PluginDirs []string
}

// resultFile is where, in a sandbox's folder, the result of the last plugin is whose ADD has worked.
const resultFile = "result.json"

// interfaceName is the name of the interface in a sandbox, as Kubernetes has it.
const interfaceName = "eth0"

// Interface returns the name of the network interface of a sandbox with its own network.
func Interface(r records.Sandbox) string {
	if len(r.Attachments) > 0 {
		return cmp.Or(r.Attachments[0].Interface, interfaceName)
	}
	return interfaceName
}

// load returns the first configuration, by the name of its file.
func (n *CNI) load() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.ConfigDir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read CNI's configuration: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no CNI configuration (*.conflist, *.conf, *.json) in %s", n.ConfigDir)
	}
	slices.Sort(files)
	list, err := readList(files[0])
	if err != nil {
		return nil, fmt.Errorf("read CNI's configuration %s: %w", files[0], err)
	}
	return list, nil
}

// readList reads a list of plugins, or a plugin's configuration as a list of one, as other runtimes do.
func readList(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var plugin map[string]json.RawMessage
	if err := json.Unmarshal(text, &plugin); err != nil {
		return nil, err
	}
	if plugin["type"] == nil {
		return nil, errors.New("no type of a plugin; a list of plugins is a *.conflist")
	}
	list := map[string]any{"plugins": []any{plugin}}
	for _, key := range []string{"cniVersion", "name"} {
		if value, ok := plugin[key]; ok {
			list[key] = value
		}
	}
	if text, err = json.Marshal(list); err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(text)
}

// config returns the current network configuration of sandboxes, after checking that its plugins exist.
func (n *CNI) config() ([]byte, error) {
	list, err := n.load()
	if err != nil {
		return nil, err
	}
	for _, p := range list.Plugins {
		if _, err := invoke.FindInPath(p.Network.Type, n.PluginDirs); err != nil {
			return nil, fmt.Errorf("no CNI plugin %q in %q", p.Network.Type, n.PluginDirs)
		}
	}
	return list.Bytes, nil
}

// statusTime limits the plugins' answers about their status, for which kubelet asks every few seconds.
const statusTime = 5 * time.Second

// status asks the plugins whether they can connect sandboxes, if their configuration is of CNI 1.1.0 or later, which
// has the question (STATUS).
func (n *CNI) status(ctx context.Context) error {
	list, err := n.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, statusTime, fmt.Errorf("no answer to STATUS within %v", statusTime))
	defer cancel()
	cni := libcni.NewCNIConfigWithCacheDir(n.PluginDirs, "", &plugins{})
	if err := cni.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("network %q cannot connect pods: %w", list.Name, err)
	}
	return nil
}

// connect connects the sandbox in that folder by the record's configuration, and sets the record's addresses. It
// records the result of each plugin before the next one is called: a DEL needs it, also if a later plugin fails.
func (n *CNI) connect(ctx context.Context, dir string, r *records.Sandbox) error {
	list, err := libcni.ConfListFromBytes(r.NetworkConfig)
	if err != nil {
		return fmt.Errorf("connect sandbox: %w", err)
	}
	record := func(result []byte) error {
		return jsonfile.Write(filepath.Join(dir, resultFile), json.RawMessage(result))
	}
	cni := libcni.NewCNIConfigWithCacheDir(n.PluginDirs, dir, &plugins{added: record})
	result, err := cni.AddNetworkList(ctx, list, runtimeConf(filepath.Join(dir, netPin), *r))
	if err != nil {
		return fmt.Errorf("connect sandbox to network %q: %w", list.Name, err)
	}
	now, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("read result of network %q: %w", list.Name, err)
	}
	for _, ip := range now.IPs {
		r.IPs = append(r.IPs, ip.Address.IP.String())
	}
	if len(r.IPs) == 0 {
		return fmt.Errorf("connect sandbox to network %q: the plugins have assigned no address", list.Name)
	}
	return nil
}

// disconnect undoes connect, also one that failed. It calls every plugin, the last first, whether the others fail or
// not. It may be repeated.
func (n *CNI) disconnect(ctx context.Context, dir string, r records.Sandbox) error {
	if r.NetworkConfig == nil {
		return nil
	}
	list, err := libcni.ConfListFromBytes(r.NetworkConfig)
	if err != nil {
		return fmt.Errorf("disconnect sandbox: %w", err)
	}
	result, err := lastResult(dir)
	if err != nil {
		return fmt.Errorf("disconnect sandbox: %w", err)
	}
	pin := filepath.Join(dir, netPin)
	pinned, err := networks.IsPinned(pin)
	if err != nil {
		return fmt.Errorf("disconnect sandbox: %w", err)
	}
	var errs []error
	var addresses []net.IPNet
	if !pinned {
		pin = "" // as CNI wants it where the namespace is gone
	} else if masquerades(list) {
		if addresses, err = addressesOf(list.CNIVersion, result); err == nil {
			err = restoreLink(pin, addresses)
		}
		errs = append(errs, err)
	}
	if has, err := cniversion.GreaterThanOrEqualTo(list.CNIVersion, "0.4.0"); err != nil || !has {
		result = nil // DEL of an earlier version has none
	}
	cni := libcni.NewCNIConfigWithCacheDir(n.PluginDirs, dir, &plugins{})
	for left := len(list.Plugins); left > 0; left-- {
		one, err := alone(list, left-1, result)
		if err == nil {
			share, cancel := shareOf(ctx, left)
			err = deleteRestored(pin, addresses, func() error { return cni.DelNetworkList(share, one, runtimeConf(pin, r)) })
			cancel()
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("disconnect sandbox from network %q: %w", list.Name, err)
	}
	return nil
}

// lastResult returns the result that connect has recorded last, nil for none.
func lastResult(dir string) (result json.RawMessage, err error) {
	err = jsonfile.Read(filepath.Join(dir, resultFile), &result)
	if errors.Is(err, fs.ErrNotExist) || jsonfile.IsDamage(err) { // a power loss has damaged it
		return nil, nil
	}
	return result, err
}

// alone returns a list of one of a list's plugins, with the result that its DEL needs: DEL of a whole list ends at the
// first plugin that fails.
func alone(list *libcni.NetworkConfigList, i int, result json.RawMessage) (*libcni.NetworkConfigList, error) {
	p := list.Plugins[i]
	if result != nil {
		var err error
		if p, err = libcni.InjectConf(p, map[string]any{"prevResult": result}); err != nil {
			return nil, err
		}
	}
	one := *list
	one.Plugins = []*libcni.PluginConfig{p}
	return &one, nil
}

// shareOf returns the context of the next of so many calls, which has its part of the time that ctx has left: a plugin
// that hangs does not keep the others from their work.
func shareOf(ctx context.Context, calls int) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	share := time.Until(end) / time.Duration(calls)
	return context.WithTimeoutCause(ctx, share, fmt.Errorf("not done within %v", share.Round(time.Millisecond)))
}

// runtimeConf is what a plugin is told of a sandbox.
func runtimeConf(pin string, r records.Sandbox) *libcni.RuntimeConf {
	conf := &libcni.RuntimeConf{
		ContainerID: r.ID, NetNS: pin, IfName: interfaceName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", r.Namespace},
			{"K8S_POD_NAME", r.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", r.ID},
			{"K8S_POD_UID", r.UID},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": r.Annotations},
	}
	if len(r.Ports) > 0 {
		conf.CapabilityArgs["portMappings"] = r.Ports
	}
	if limits, err := bandwidthOf(r); err == nil && limits != nil { // see CheckBandwidth
		conf.CapabilityArgs["bandwidth"] = limits
	}
	return conf
}
