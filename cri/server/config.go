package server

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/internal/loopback"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/names"
)

// Config is the server's configuration file. A key that is missing has its default.
type Config struct {
	// Socket is the path of the server's socket.
	Socket string `json:"socket"`
	// State is the folder of images, sandboxes and containers.
	State string `json:"state"`
	// StagerImage names the stager: a name or ID of the store of images, or a source as of the launcher.
	StagerImage string `json:"stagerImage"`
	// TrustedKeys and TrustDirectory have the keys that may sign the stager, as in the launcher's configuration.
	TrustedKeys    []string `json:"trustedKeys"`
	TrustDirectory string   `json:"trustDirectory"`
	// InsecureRegistries lists the registries that may be asked by plain HTTP; those of the loopback device always may.
	InsecureRegistries []string `json:"insecureRegistries"`
	// RegistriesDirectory has the registries' mirrors and authorities, as in the launcher's configuration.
	RegistriesDirectory string `json:"registriesDirectory"`
	// MetricsAddress is where the server serves /metrics, a loopback address with a port, or unix:// and the path of a
	// socket; "" for nowhere.
	MetricsAddress string `json:"metricsAddress"`
	// CgroupDriver is "systemd" or "cgroupfs", as in kubelet's configuration; the default is systemd where systemd runs.
	CgroupDriver string `json:"cgroupDriver"`
	// CDISpecDirectories are the folders of the specs of CDI devices, later ones before earlier ones.
	CDISpecDirectories []string `json:"cdiSpecDirectories"`
	// NetworkConfigDirectory is where CNI's configurations are, of which the first by its name is used.
	NetworkConfigDirectory string `json:"networkConfigDirectory"`
	// NetworkPluginDirectories are the folders of CNI's plugins.
	NetworkPluginDirectories []string `json:"networkPluginDirectories"`
	// ContainerNetworksDirectory is a folder of Kurma's networks, as in the launcher's configuration. If it is set,
	// sandboxes are connected to its networks with "default": true, and not by CNI.
	ContainerNetworksDirectory string `json:"containerNetworksDirectory"`
	// StreamAddress is the address, HOST:PORT, of exec, attach and port-forward. Port 0 is a free one.
	StreamAddress string `json:"streamAddress"`
}

// The drivers of Config.CgroupDriver.
const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
)

// Fill sets the defaults of missing keys.
func (c *Config) Fill() {
	c.Socket = cmp.Or(c.Socket, "/run/kurma-cri/kurma-cri.sock")
	c.State = cmp.Or(c.State, "/var/lib/kurma-cri")
	c.StagerImage = cmp.Or(c.StagerImage, names.Image)
	c.RegistriesDirectory = cmp.Or(c.RegistriesDirectory, daemon.DefaultRegistries)
	c.StreamAddress = cmp.Or(c.StreamAddress, "127.0.0.1:0")
	c.NetworkConfigDirectory = cmp.Or(c.NetworkConfigDirectory, "/etc/cni/net.d")
	if c.NetworkPluginDirectories == nil {
		c.NetworkPluginDirectories = []string{"/opt/cni/bin"}
	}
	if c.CDISpecDirectories == nil {
		c.CDISpecDirectories = []string{"/etc/cdi", "/var/run/cdi"}
	}
	if c.CgroupDriver == "" {
		c.CgroupDriver = driverCgroupfs
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			c.CgroupDriver = driverSystemd
		}
	}
}

// Check returns an error that names a key with a wrong value.
func (c *Config) Check() error {
	if c.CgroupDriver != driverSystemd && c.CgroupDriver != driverCgroupfs {
		return fmt.Errorf("cgroupDriver %q: want %q or %q", c.CgroupDriver, driverSystemd, driverCgroupfs)
	}
	for key, paths := range map[string][]string{
		"socket": {c.Socket}, "state": {c.State}, "registriesDirectory": {c.RegistriesDirectory},
		"cdiSpecDirectories":     c.CDISpecDirectories,
		"networkConfigDirectory": {c.NetworkConfigDirectory}, "networkPluginDirectories": c.NetworkPluginDirectories,
		"containerNetworksDirectory": slices.DeleteFunc([]string{c.ContainerNetworksDirectory}, isEmpty),
	} {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				return fmt.Errorf("%s %q: want an absolute path", key, path)
			}
		}
	}
	if c.MetricsAddress != "" {
		if err := loopback.Check(c.MetricsAddress); err != nil {
			return fmt.Errorf("metricsAddress %q: %w", c.MetricsAddress, err)
		}
	}
	if _, _, err := net.SplitHostPort(c.StreamAddress); err != nil {
		return fmt.Errorf("streamAddress %q: want HOST:PORT", c.StreamAddress)
	}
	return nil
}

func isEmpty(text string) bool { return text == "" }

// monitor is the command line of a pod's monitor, to which the pod's folder is added.
func monitor() []string { return []string{runtimeName, MonitorCommand} }

// starter is the command line of a process that becomes a stager, to which words are added.
func starter() []string { return []string{runtimeName, StartCommand} }

// daemon returns the configuration of the launcher's library, for pods with that stagerConfig.
func (c *Config) daemon(stagerConfig []byte) daemon.Config {
	return daemon.Config{
		PodsDirectory:     filepath.Join(c.State, "pods"),
		ImagesDirectory:   filepath.Join(c.State, "images"),
		NetworksDirectory: filepath.Join(c.State, "networks"),
		// Sandboxes are connected, pods are not.
		ContainerNetworksDirectory: filepath.Join(c.State, "networks.d"),
		CacheDirectory:             filepath.Join(c.State, "cache"),
		DefaultStagerImage:         c.StagerImage,
		DefaultStagerConfig:        stagerConfig,
		TrustedKeys:                c.TrustedKeys,
		TrustDirectory:             c.TrustDirectory,
		InsecureRegistries:         c.InsecureRegistries,
		RegistriesDirectory:        c.RegistriesDirectory,
	}
}
