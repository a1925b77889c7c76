package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/crilog"
	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/spec"
)

// Config is the stager's configuration: the manifest's stagerConfig, over the image's. CONFIG.md documents every key.
type Config struct {
	GraphStorage         string   // a unionfs.Driver's name, or "" for the first that works
	Runtime              string   // how the runtime starts apps: a name of spec.Starters, or "" for its own choice
	RequiredNamespaces   []string // that no pod may share with the host
	DefaultNamespaces    []string // that a pod has of its own unless it asks for the host's
	UserNamespace        UserNamespace
	GracePeriod          time.Duration
	ExitPolicy           spec.ExitPolicy    // its zero value is "never"
	Restart              spec.RestartPolicy // its zero value is "never"
	StrictIsolators      bool
	ExecutorVariables    bool     // apps have AC_APP_NAME, AC_METADATA_URL and container
	MakeWorkingDirectory bool     // a working directory that is missing is made
	MaskedPaths          []string // of apps that are not privileged; nil for the stager's own list
	ReadOnlyPaths        []string // likewise
	MaxProcesses         MaxProcesses
	SharedMemory         int64        // the size of the pod's /dev/shm, in bytes; the key "shmSize"
	Forbid               []Power      // the powers that no app of a pod may ask for
	VolumeFlags          []VolumeFlag // of all host volumes
	VolumePropagation    map[string]spec.Propagation
	DeviceVolumes        []string // the host volumes that may be devices; nil for all
	PodVolumes           []string // the empty volumes whose folders the daemon has made for this pod
	Log                  LogConfig

	Values map[string]any // of the product's keys, see Rows
}

// MaxProcesses is the key "maxProcesses": the maximum number of tasks, threads included, in an app and
// in all apps of a pod. 0 is no limit.
type MaxProcesses struct{ App, Pod int64 }

// maxPIDs is the most that MaxProcesses may be: PID_MAX_LIMIT (proc_sys_kernel(5)).
const maxPIDs = 1 << 22

// Power is a right beyond the defaults: an isolator can request it, and the key "forbid" can refuse it.
type Power string

// The powers.
const (
	PowerPrivileged     Power = "privileged"     // os/linux/privileged
	PowerCapabilities   Power = "capabilities"   // a capability beyond the default set
	PowerSeccomp        Power = "seccomp"        // no seccomp filter, or one in place of the default filter
	PowerHostNamespaces Power = "hostNamespaces" // a namespace of the host, by os/linux/namespaces
)

// VolumeFlag is a flag that the key "volumeFlags" sets for the mounts of host volumes (mount(2)).
type VolumeFlag string

// The flags.
const (
	FlagNoSuid VolumeFlag = "nosuid" // set-ID bits and file capabilities have no effect
	FlagNoDev  VolumeFlag = "nodev"  // device nodes cannot be opened; a volume that is a device itself can be
)

// LogConfig is the key "log".
type LogConfig struct {
	Driver   string // LogToFiles or LogToJournal
	Path     string // of the only app's log, an absolute path in the stager's root; "" for a folder in names.LogDir
	MaxSize  int64  // of one file, in bytes
	MaxFiles int    // kept for each app
}

// The values of LogConfig.Driver.
const (
	LogToFiles   = "file"     // the apps' output goes to files
	LogToJournal = "journald" // the apps' output goes to files and to the host's journal
)

// setting is one key of stagerConfig, or of an object in it.
type setting struct {
	key string
	set func(*Config, json.RawMessage) error // its error says what the value must be
}

// settings is the table of keys. To add a key, add a row here and in CONFIG.md. drivers are the names that graphStorage
// accepts.
func settings(drivers []string) []setting {
	return []setting{
		{"graphStorage", func(c *Config, v json.RawMessage) error {
			return oneOf(v, &c.GraphStorage, append([]string{""}, drivers...)...)
		}},
		{"runtime", func(c *Config, v json.RawMessage) error {
			return oneOf(v, &c.Runtime, append([]string{""}, spec.Starters()...)...)
		}},
		{"requiredNamespaces", func(c *Config, v json.RawMessage) error {
			return listOf(v, &c.RequiredNamespaces, namespaceNames()...)
		}},
		{"defaultNamespaces", func(c *Config, v json.RawMessage) error {
			return listOf(v, &c.DefaultNamespaces, namespaceNames()...)
		}},
		{"userNamespace.hostID", func(c *Config, v json.RawMessage) error { return hostID(v, &c.UserNamespace.HostID) }},
		{"userNamespace.size", func(c *Config, v json.RawMessage) error {
			return whole(v, &c.UserNamespace.Size, 1, spec.MaxID)
		}},
		{"gracePeriod", func(c *Config, v json.RawMessage) error { return duration(v, &c.GracePeriod) }},
		{"exitPolicy", func(c *Config, v json.RawMessage) error { return policy(v, &c.ExitPolicy, spec.ExitPolicies()) }},
		{"restart", func(c *Config, v json.RawMessage) error { return policy(v, &c.Restart, spec.RestartPolicies()) }},
		{"strictIsolators", func(c *Config, v json.RawMessage) error { return boolean(v, &c.StrictIsolators) }},
		{"executorVariables", func(c *Config, v json.RawMessage) error { return boolean(v, &c.ExecutorVariables) }},
		{"makeWorkingDirectory", func(c *Config, v json.RawMessage) error { return boolean(v, &c.MakeWorkingDirectory) }},
		{"maskedPaths", func(c *Config, v json.RawMessage) error { return absolutePaths(v, &c.MaskedPaths) }},
		{"readOnlyPaths", func(c *Config, v json.RawMessage) error { return absolutePaths(v, &c.ReadOnlyPaths) }},
		{"maxProcesses.app", func(c *Config, v json.RawMessage) error { return whole(v, &c.MaxProcesses.App, 0, maxPIDs) }},
		{"maxProcesses.pod", func(c *Config, v json.RawMessage) error { return whole(v, &c.MaxProcesses.Pod, 0, maxPIDs) }},
		{"shmSize", func(c *Config, v json.RawMessage) error { return size(v, &c.SharedMemory) }},
		{"forbid", func(c *Config, v json.RawMessage) error {
			return listOf(v, &c.Forbid, PowerPrivileged, PowerCapabilities, PowerSeccomp, PowerHostNamespaces)
		}},
		{"volumeFlags", func(c *Config, v json.RawMessage) error { return listOf(v, &c.VolumeFlags, FlagNoSuid, FlagNoDev) }},
		{"podVolumes", func(c *Config, v json.RawMessage) error { return volumeNames(v, &c.PodVolumes) }},
		{"deviceVolumes", func(c *Config, v json.RawMessage) error { return volumeNames(v, &c.DeviceVolumes) }},
		{"volumePropagation", func(c *Config, v json.RawMessage) error { return propagations(v, &c.VolumePropagation) }},
		{"log.driver", func(c *Config, v json.RawMessage) error { return oneOf(v, &c.Log.Driver, LogToFiles, LogToJournal) }},
		{"log.path", func(c *Config, v json.RawMessage) error { return absolutePath(v, &c.Log.Path) }},
		{"log.maxSize", func(c *Config, v json.RawMessage) error { return size(v, &c.Log.MaxSize) }},
		{"log.maxFiles", func(c *Config, v json.RawMessage) error { return whole(v, &c.Log.MaxFiles, 1, 1000) }},
	}
}

// objects are the keys that are objects of settings.
func objects() []string { return []string{"log", "maxProcesses", "userNamespace"} }

func defaultConfig() Config {
	return Config{
		DefaultNamespaces: []string{"ipc", "net", "pid", "uts"},
		UserNamespace:     UserNamespace{Size: 1 << 16},
		GracePeriod:       10 * time.Second,
		ExecutorVariables: true,
		MaxProcesses:      MaxProcesses{App: 4096, Pod: 16384},
		SharedMemory:      64 << 20,
		Log:               LogConfig{Driver: LogToFiles, MaxSize: crilog.DefaultMaxSize, MaxFiles: crilog.DefaultMaxFiles},
	}
}

// parse sets what an object of configuration has: stagerConfig, or the file of that name in the stager's image. raw is
// nil for none. A null value changes nothing. unknown are the keys that the table lacks, sorted, for a warning.
func (c *Config) parse(name string, raw json.RawMessage, table []setting) (unknown []string, err error) {
	values := make(strictjson.Object)
	if err := flatten(name, "", raw, values); err != nil {
		return nil, err
	}
	for _, s := range table {
		v := values.Take(s.key) // in any case, as Kurma's own stager does
		if v == nil {
			continue
		}
		if err := s.set(c, v); err != nil {
			return nil, fmt.Errorf("%s.%s: %s: %w", name, s.key, showValue(v), err)
		}
	}
	for key := range values {
		unknown = append(unknown, name+"."+key)
	}
	slices.Sort(unknown)
	return unknown, nil
}

// flatten adds an object's values that are not null to values, under their dotted keys. name is the whole
// configuration's.
func flatten(name, prefix string, raw json.RawMessage, values strictjson.Object) error {
	if strictjson.IsNull(raw) {
		return nil
	}
	var object strictjson.Object
	if err := strictjson.Unmarshal(strings.TrimSuffix(name+"."+prefix, "."), raw, &object); err != nil {
		return err
	}
	if err := object.CheckKeys(); err != nil {
		return fmt.Errorf("%s.%s%w", name, prefix, err)
	}
	for key, v := range object {
		switch {
		case prefix == "" && slices.ContainsFunc(objects(), func(object string) bool {
			return strings.EqualFold(key, object)
		}):
			if err := flatten(name, key+".", v, values); err != nil {
				return err
			}
		case strictjson.IsNull(v):
		case strings.Contains(key, "."):
			values[prefix+strconv.Quote(key)] = v // an unknown key, not a dotted one of the table
		default:
			values[prefix+key] = v
		}
	}
	return nil
}

// read reads a value that ok accepts. Want describes such values.
func read[T any](raw json.RawMessage, to *T, want string, ok func(T) bool) error {
	var v T
	if json.Unmarshal(raw, &v) != nil || !ok(v) {
		return errors.New("must be " + want)
	}
	*to = v
	return nil
}

func oneOf[T ~string](raw json.RawMessage, to *T, allowed ...T) error {
	return read(raw, to, "one of "+quoted(allowed), func(v T) bool { return slices.Contains(allowed, v) })
}

// policy reads the name of one of the supervisor's policies.
func policy[P any](raw json.RawMessage, to *P, known []spec.NamedPolicy[P]) error {
	words := make([]string, len(known))
	for i, p := range known {
		words[i] = p.Name
	}
	var name string
	if err := oneOf(raw, &name, words...); err != nil {
		return err
	}
	*to = known[slices.Index(words, name)].Policy
	return nil
}

// quoted lists words on one line, even if a word contains a newline.
func quoted[T ~string](words []T) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(list, ", ")
}

func duration(raw json.RawMessage, to *time.Duration) error {
	var v string
	if json.Unmarshal(raw, &v) == nil {
		if d, err := time.ParseDuration(v); err == nil && d >= 0 {
			*to = d
			return nil
		}
	}
	return errors.New(`must be a duration that is not negative, such as "10s" or "1m30s"`)
}

func boolean(raw json.RawMessage, to *bool) error {
	return read(raw, to, "true or false", func(bool) bool { return true })
}

func absolutePath(raw json.RawMessage, to *string) error {
	return read(raw, to, `an absolute path, such as "/volumes/logs/web.log"`, func(p string) bool {
		return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
	})
}

func absolutePaths(raw json.RawMessage, to *[]string) error {
	bad := func(p string) bool { return !path.IsAbs(p) || path.Clean(p) == "/" || strings.ContainsRune(p, 0) }
	return read(raw, to, "a list of absolute paths below /", func(v []string) bool { return !slices.ContainsFunc(v, bad) })
}

// whole reads a whole number.
func whole[T int | int64 | uint32](raw json.RawMessage, to *T, least, most T) error {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return read(raw, to, want, func(v T) bool { return least <= v && v <= most })
}

func listOf[T ~string](raw json.RawMessage, to *[]T, known ...T) error {
	unknown := func(word T) bool { return !slices.Contains(known, word) }
	return read(raw, to, "a list of "+quoted(known), func(v []T) bool { return !slices.ContainsFunc(v, unknown) })
}

func volumeNames(raw json.RawMessage, to *[]string) error {
	return read(raw, to, "a list of volumes' names", func([]string) bool { return true })
}

// propagations reads an object of words by the names of volumes.
func propagations(raw json.RawMessage, to *map[string]spec.Propagation) error {
	words := map[string]spec.Propagation{"slave": spec.ToContainer, "private": spec.Apart, "shared": spec.BothWays}
	var v map[string]string
	if json.Unmarshal(raw, &v) != nil {
		return errors.New(`must be an object of volumes' names and "slave", "private" or "shared"`)
	}
	*to = make(map[string]spec.Propagation)
	for volume, word := range v {
		p, known := words[word]
		if !known {
			return fmt.Errorf(`volume %q: must be "slave", "private" or "shared"`, volume)
		}
		(*to)[volume] = p
	}
	return nil
}

// size reads a number of bytes, or a string with one of appc's suffixes.
func size(raw json.RawMessage, to *int64) error {
	q, err := parseQuantity(raw)
	if err != nil || q.units() < 1024 {
		return errors.New(`must be a size of at least 1024 bytes, such as 65536 or "10Mi"`)
	}
	*to = q.units()
	return nil
}

// showValue returns a JSON value for an error message: compact, on one line and shortened.
func showValue(raw json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return strictjson.Show(raw)
	}
	return strictjson.Show(compact.Bytes())
}
