package daemon

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/names"
)

// Files and folders that are used unless a configuration names others.
const (
	DefaultConfigFile = "/etc/kurma/kurmad.json"
	DefaultState      = "/var/lib/kurma"
	defaultKeyring    = "/etc/kurma/trusted-keys.asc"
	defaultTrust      = "/etc/kurma/trusted-keys"
	defaultNetworks   = "/usr/share/kurma/networks.d"
)

// DefaultMaxImage is Config.MaxImageSize unless a configuration has another: 16 GiB.
const DefaultMaxImage = 16 << 30

// DefaultRegistries is Config.RegistriesDirectory where that has no value.
const DefaultRegistries = "/etc/kurma/certs.d"

// Config is the configuration file: a JSON object, which is also a YAML document, with the
// keys of Kurma's kurmad.yml. A key that is missing or null has its default. Paths
// are relative to the file's folder, and in a Config that was not read from a file to the working folder.
type Config struct {
	// ParentCgroupName is the control group that the pods' groups are made in.
	ParentCgroupName string `json:"parentCgroupName"`
	PodsDirectory    string `json:"podsDirectory"`
	ImagesDirectory  string `json:"imagesDirectory"`
	// VolumesDirectory is the folder of the named volumes.
	VolumesDirectory string `json:"volumesDirectory"`
	// DefaultStagerImage names the stager, as `image list` shows it.
	DefaultStagerImage string `json:"defaultStagerImage"`
	// DefaultStagerConfig is the stagerConfig of every pod.
	DefaultStagerConfig json.RawMessage `json:"defaultStagerConfig"`
	// TrustedKeys lists the keyring files, armored or binary, of the keys
	// that are trusted for every image.
	TrustedKeys []string `json:"trustedKeys"`
	// ContainerNetworks are the networks of pods, see networks.Parse.
	ContainerNetworks []json.RawMessage `json:"container_networks"`
	// ContainerNetworksDirectory is the folder of entries that packages have, see networks.ReadFolder.
	ContainerNetworksDirectory string `json:"containerNetworksDirectory"`
	// NetworksDirectory is the folder of the networks' plugin containers.
	NetworksDirectory string `json:"networksDirectory"`
	// TrustDirectory is the folder of keys that `trust` manages, see signing.ReadTrust.
	TrustDirectory string `json:"trustDirectory"`
	// CacheDirectory is the cache of sources.Fetcher.
	CacheDirectory string `json:"cacheDirectory"`
	// MaxImageSize is MaxSize of sources.Fetcher, in bytes.
	MaxImageSize int64 `json:"maxImageSize"`
	// InsecureRegistries lists the registries that are asked by HTTP, see sources.Fetcher.
	InsecureRegistries []string `json:"insecureRegistries"`
	// RegistriesDirectory is the folder of the registries' mirrors and authorities, Hosts of sources.Fetcher.
	RegistriesDirectory string `json:"registriesDirectory"`
	// ImagePins maps names of images to the only ID or version that each of them means.
	ImagePins map[string]string `json:"imagePins"`
}

// ReadConfig reads the file, or the default file if path is "" and that exists.
func ReadConfig(path string) (Config, error) {
	optional := path == ""
	if optional {
		path = DefaultConfigFile
	}
	var c Config
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := c.parse(data, filepath.Dir(path)); err != nil {
			return Config{}, fmt.Errorf("read configuration %s: %w", path, err)
		}
	case !optional || !errors.Is(err, fs.ErrNotExist):
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return c, nil
}

func (c *Config) parse(data []byte, dir string) error {
	err := strictjson.Decode(data, c)
	switch {
	case errors.Is(err, strictjson.ErrTrailing):
		return errors.New("more than one JSON value")
	case errors.Is(err, strictjson.ErrEmpty):
		return fmt.Errorf("%w: want a JSON object, {} for the defaults", err)
	case err != nil && json.Valid(data) && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")):
		return errors.New("not a JSON object, such as {} for the defaults")
	case err != nil:
		return wrongConfig(data, err)
	}
	if c.ParentCgroupName != "" && !IsCgroup(c.ParentCgroupName) {
		return fmt.Errorf("parentCgroupName: %s: want a path below the root of the cgroups, such as \"machine/kurma\"",
			strictjson.Quote(c.ParentCgroupName))
	}
	if string(c.DefaultStagerConfig) == "null" { // null, as for the other keys
		c.DefaultStagerConfig = nil
	}
	for _, p := range c.paths() {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return nil
}

// paths returns the files and folders that the configuration names.
func (c *Config) paths() []*string {
	all := []*string{
		&c.PodsDirectory, &c.ImagesDirectory, &c.NetworksDirectory, &c.ContainerNetworksDirectory, &c.TrustDirectory,
		&c.CacheDirectory, &c.VolumesDirectory, &c.RegistriesDirectory,
	}
	for i := range c.TrustedKeys {
		all = append(all, &c.TrustedKeys[i])
	}
	return all
}

// resolve makes the paths absolute.
func (c *Config) resolve() (err error) {
	for _, path := range c.paths() {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// wrongConfig says by the names of keys why data, a JSON object, is not a configuration. err is the decoder's reason.
func wrongConfig(data []byte, err error) error {
	if err := strictjson.Unmarshal("", data, new(Config)); err != nil {
		return err
	}
	var object strictjson.Object
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	wire := reflect.TypeFor[Config]()
	for i := range wire.NumField() {
		object.Take(wire.Field(i).Tag.Get("json"))
	}
	unknown := slices.Sorted(maps.Keys(object))
	if len(unknown) == 0 {
		return err
	}
	return fmt.Errorf("unknown key %s", strictjson.Quote(unknown[0]))
}

// IsCgroup reports whether a path names a cgroup below each hierarchy's root.
func IsCgroup(path string) bool { return filepath.IsLocal(path) }

// fill sets the defaults.
func (c *Config) fill(state string) {
	state = cmp.Or(state, DefaultState)
	c.ParentCgroupName = cmp.Or(c.ParentCgroupName, "kurma")
	c.PodsDirectory = cmp.Or(c.PodsDirectory, filepath.Join(state, "pods"))
	c.ImagesDirectory = cmp.Or(c.ImagesDirectory, filepath.Join(state, "images"))
	c.VolumesDirectory = cmp.Or(c.VolumesDirectory, filepath.Join(state, "volumes"))
	c.NetworksDirectory = cmp.Or(c.NetworksDirectory, filepath.Join(state, "networks"))
	c.CacheDirectory = cmp.Or(c.CacheDirectory, filepath.Join(state, "cache"))
	c.DefaultStagerImage = cmp.Or(c.DefaultStagerImage, names.Image)
	c.TrustDirectory = cmp.Or(c.TrustDirectory, defaultTrust)
	c.RegistriesDirectory = cmp.Or(c.RegistriesDirectory, DefaultRegistries)
	c.ContainerNetworksDirectory = cmp.Or(c.ContainerNetworksDirectory, defaultNetworks)
	c.MaxImageSize = cmp.Or(c.MaxImageSize, DefaultMaxImage)
	if _, err := os.Stat(defaultKeyring); err == nil && c.TrustedKeys == nil {
		c.TrustedKeys = []string{defaultKeyring}
	}
}
