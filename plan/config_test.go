package plan

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/unionfs"
)

func TestEveryKeyOfTheConfigurationIsRead(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := defaultConfig()
		change(&c)
		return c
	}
	tests := []struct {
		name, text string
		want       Config
		unknown    []string
	}{
		{"absent", "", defaultConfig(), nil},
		{"null", "null", defaultConfig(), nil},
		{"empty", "{}", defaultConfig(), nil},
		{"null values", `{"graphStorage": null, "log": null, "restart": null}`, defaultConfig(), nil},
		{"graph storage", `{"graphStorage": "aufs"}`, with(func(c *Config) { c.GraphStorage = "aufs" }), nil},
		{"graph storage empty", `{"graphStorage": ""}`, defaultConfig(), nil},
		{"runtime", `{"runtime": "direct"}`, with(func(c *Config) { c.Runtime = spec.DirectStarts }), nil},
		{"other case", `{"GraphStorage": "copy", "LOG": {"maxfiles": 2}}`, with(func(c *Config) { c.GraphStorage, c.Log.MaxFiles = "copy", 2 }), nil},
		{
			"Kurma's own defaults", `{"requiredNamespaces": ["ipc", "pid", "uts"], "defaultNamespaces": ["ipc", "net", "pid", "uts"], "graphStorage": "overlay"}`,
			with(func(c *Config) { c.RequiredNamespaces, c.GraphStorage = []string{"ipc", "pid", "uts"}, "overlay" }), nil,
		},
		{"durations", `{"gracePeriod": "1m30s"}`, with(func(c *Config) { c.GracePeriod = 90 * time.Second }), nil},
		{"no grace", `{"gracePeriod": "0s"}`, with(func(c *Config) { c.GracePeriod = 0 }), nil},
		{
			"policies", `{"exitPolicy": "failure", "restart": "on-failure"}`,
			with(func(c *Config) {
				c.ExitPolicy, c.Restart = spec.ExitPolicy{WhenAllEnded: true, AtFailure: true}, spec.RestartPolicy{AfterFailure: true}
			}), nil,
		},
		{"shared memory", `{"shmSize": "1Gi"}`, with(func(c *Config) { c.SharedMemory = 1 << 30 }), nil},
		{"limits of processes", `{"maxProcesses": {"app": 0, "POD": 7}}`, with(func(c *Config) { c.MaxProcesses = MaxProcesses{App: 0, Pod: 7} }), nil},
		{"forbidden powers", `{"forbid": ["seccomp", "privileged"]}`, with(func(c *Config) { c.Forbid = []Power{PowerSeccomp, PowerPrivileged} }), nil},
		{"paths", `{"maskedPaths": [], "readOnlyPaths": ["/proc/sys"]}`, with(func(c *Config) {
			c.MaskedPaths, c.ReadOnlyPaths = []string{}, []string{"/proc/sys"}
		}), nil},
		{"propagations", `{"volumePropagation": {"A": "private", "b": "slave"}}`, with(func(c *Config) {
			c.VolumePropagation = map[string]spec.Propagation{"A": spec.Apart, "b": spec.ToContainer}
		}), nil},
		{"volumes of the pod", `{"podVolumes": ["a", "b"]}`, with(func(c *Config) { c.PodVolumes = []string{"a", "b"} }), nil},
		{"no devices", `{"deviceVolumes": []}`, with(func(c *Config) { c.DeviceVolumes = []string{} }), nil},
		{"flags of volumes", `{"volumeFlags": ["nodev"]}`, with(func(c *Config) { c.VolumeFlags = []VolumeFlag{FlagNoDev} }), nil},
		{"user namespace", `{"userNamespace": {"hostID": 7, "size": 10}}`, with(func(c *Config) { c.UserNamespace = UserNamespace{7, 10} }), nil},
		{"strict isolators", `{"strictIsolators": true}`, with(func(c *Config) { c.StrictIsolators = true }), nil},
		{
			"log", `{"log": {"driver": "journald", "path": "/log", "maxSize": "1Mi", "maxFiles": 2}}`,
			with(func(c *Config) { c.Log = LogConfig{"journald", "/log", 1 << 20, 2} }), nil,
		},
		{"log size a number", `{"log": {"maxSize": 4096}}`, with(func(c *Config) { c.Log.MaxSize = 4096 }), nil},
		{"unknown keys", `{"b": 1, "a": {"c": 2}, "log": {"z": 0}}`, defaultConfig(), []string{"stagerConfig.a", "stagerConfig.b", "stagerConfig.log.z"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := defaultConfig()
			unknown, err := got.parse("stagerConfig", json.RawMessage(test.text), settings(unionfs.NamesOf(unionfs.Drivers())))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.unknown, unknown); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a list", `[1]`, `stagerConfig: [1]: must be an object`},
		{"a key twice", `{"gracePeriod": "1s", "GracePeriod": "2h"}`, `stagerConfig.gracePeriod: given twice, as "GracePeriod" and "gracePeriod"`},
		{"log twice", `{"log": {}, "LOG": {}}`, `stagerConfig.log: given twice, as "LOG" and "log"`},
		{"a key of log twice", `{"log": {"maxFiles": 1, "MaxFiles": 2}}`, `stagerConfig.log.maxFiles: given twice`},
		{"unknown storage", `{"graphStorage": "zfs"}`, `stagerConfig.graphStorage: "zfs": must be one of "", "overlay", "aufs", "copy"`},
		{"storage a number", `{"graphStorage": 1}`, `stagerConfig.graphStorage: 1: must be one of`},
		{"unknown runtime", `{"runtime": "runc"}`, `stagerConfig.runtime: "runc": must be one of "", "direct", "libcontainer"`},
		{"unknown namespace", `{"requiredNamespaces": ["pid", "time"]}`, `stagerConfig.requiredNamespaces: ["pid","time"]: must be a list of "ipc", "net"`},
		{"namespaces a string", `{"defaultNamespaces": "pid"}`, `stagerConfig.defaultNamespaces: "pid": must be a list of`},
		{"masked paths", `{"maskedPaths": ["/proc/acpi", "acpi"]}`, `stagerConfig.maskedPaths: ["/proc/acpi","acpi"]: must be a list of absolute paths`},
		{"read-only root", `{"readOnlyPaths": ["//."]}`, `must be a list of absolute paths below /`},
		{"propagations a word", `{"volumePropagation": "shared"}`, `stagerConfig.volumePropagation: "shared": must be an object`},
		{"unknown propagation", `{"volumePropagation": {"v": "both"}}`, `volume "v": must be "slave", "private" or "shared"`},
		{"volumes of the pod a word", `{"podVolumes": "a"}`, `stagerConfig.podVolumes: "a": must be a list of volumes' names`},
		{"devices a word", `{"deviceVolumes": "disk"}`, `stagerConfig.deviceVolumes: "disk": must be a list of volumes' names`},
		{"unknown flag", `{"volumeFlags": ["noexec"]}`, `stagerConfig.volumeFlags: ["noexec"]: must be a list of "nosuid", "nodev"`},
		{"duration a number", `{"gracePeriod": 10}`, `stagerConfig.gracePeriod: 10: must be a duration`},
		{"duration negative", `{"gracePeriod": "-1s"}`, `stagerConfig.gracePeriod: "-1s": must be a duration`},
		{"exit policy", `{"exitPolicy": "any"}`, `stagerConfig.exitPolicy: "any": must be one of "never", "all", "failure"`},
		{"restart", `{"restart": true}`, `stagerConfig.restart: true: must be one of "never", "on-failure", "always"`},
		{"user namespace of user 0", `{"userNamespace": {"hostID": 0}}`, `stagerConfig.userNamespace.hostID: 0: must be a whole number from 1 to 4294967294, or "auto"`},
		{"user namespace without IDs", `{"userNamespace": {"hostID": 1, "size": "all"}}`, `stagerConfig.userNamespace.size: "all": must be a whole number`},
		{"user namespace a switch", `{"userNamespace": true}`, `stagerConfig.userNamespace: true: must be an object`},
		{"strict isolators", `{"strictIsolators": "yes"}`, `stagerConfig.strictIsolators: "yes": must be true or false`},
		{"log a string", `{"log": "journald"}`, `stagerConfig.log: "journald": must be an object`},
		{"log driver", `{"log": {"driver": "syslog"}}`, `stagerConfig.log.driver: "syslog": must be one of "file", "journald"`},
		{"log size", `{"log": {"maxSize": "1"}}`, `stagerConfig.log.maxSize: "1": must be a size of at least 1024 bytes`},
		{"log path", `{"log": {"path": "logs/web"}}`, `stagerConfig.log.path: "logs/web": must be an absolute path`},
		{"log files", `{"log": {"maxFiles": 0}}`, `stagerConfig.log.maxFiles: 0: must be a whole number from 1 to 1000`},
		{"a value of several lines", "{\"restart\": [1,\n\n2]}", `stagerConfig.restart: [1,2]: must be`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := defaultConfig()
			_, err := config.parse("stagerConfig", json.RawMessage(test.text), settings(unionfs.NamesOf(unionfs.Drivers())))
			wantError(t, err, test.want)
		})
	}
}

// The configuration in the image has the defaults of the keys that the manifest's lacks. Each is named in errors and warnings.
func TestTheImageHasDefaultsOfConfiguration(t *testing.T) {
	m, err := manifest.Read(strings.NewReader(example(t)))
	if err != nil {
		t.Fatal(err)
	}
	m.StagerConfig = json.RawMessage(`{"GracePeriod": "1s", "log": {"maxFiles": 2}, "restart": null}`)
	pod, err := Decide(m, able, nil, json.RawMessage(`{"gracePeriod": "2s", "restart": "always", "log": {"maxFiles": 3, "maxSize": 4096}, "x": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.GracePeriod, want.Log.MaxFiles, want.Log.MaxSize = time.Second, 2, 4096
	want.Restart = spec.RestartPolicies()[2].Policy // "always"
	if diff := cmp.Diff(want, pod.Config); diff != "" {
		t.Error(diff)
	}
	if warning := "unknown key, ignored: " + names.ConfigFile + ".x"; !slices.Contains(pod.Warnings, warning) {
		t.Errorf("warnings %q, want %q", pod.Warnings, warning)
	}
	_, err = Decide(m, able, nil, json.RawMessage(`{"gracePeriod": 2}`))
	wantError(t, err, names.ConfigFile+".gracePeriod: 2: must be a duration")
}

// wantError checks for an error of one line that has the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has several lines", err)
	}
}

func TestConfigIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../stager/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings(nil) {
		if n := strings.Count(string(text), "\n| `"+s.key+"` |"); n != 1 {
			t.Errorf("CONFIG.md has %d rows for %s", n, s.key)
		}
	}
	if rows := strings.Count(string(text), "\n| `"); rows != len(settings(nil)) {
		t.Errorf("CONFIG.md has %d rows for %d settings", rows, len(settings(nil)))
	}
}

// D-16 in tests/CLAUSES.md says which suffixes there are.
func TestQuantitiesAreRead(t *testing.T) {
	clause.Covers(t, "C-RES-01")
	tests := []struct {
		text         string
		units, milli int64
	}{
		{`"128974848"`, 128974848, 128974848000},
		{`"125952Ki"`, 128974848, 128974848000},
		{`"123Mi"`, 128974848, 128974848000},
		{`128974848`, 128974848, 128974848000},
		{`"500m"`, 1, 500},
		{`"0.3"`, 1, 300},
		{`".5"`, 1, 500},
		{`"5."`, 5, 5000},
		{`0.25`, 1, 250},
		{`"0.1m"`, 1, 1},
		{`"1K"`, 1000, 1000000},
		{`"1k"`, 1000, 1000000},
		{`"1e3"`, 1000, 1000000},
		{`"1E3"`, 1000, 1000000},
		{`1e-3`, 1, 1},
		{`"2M"`, 2000000, 2000000000},
		{`"1E"`, 1e18, 1<<63 - 1},
		{`"1Ei"`, 1 << 60, 1<<63 - 1},
		{`"1.5Gi"`, 1610612736, 1610612736000},
		{`"+7"`, 7, 7000},
		{`"0"`, 0, 0},
		{`"-5"`, -5, -5000},
		{`"9223372036854775807"`, 1<<63 - 1, 1<<63 - 1},
		{`"9999999999999999999999"`, 1<<63 - 1, 1<<63 - 1},
		{`"1e999"`, 1<<63 - 1, 1<<63 - 1},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			q, err := parseQuantity(json.RawMessage(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if q.units() != test.units || q.millis() != test.milli {
				t.Errorf("got %d units, %d thousandths; want %d, %d", q.units(), q.millis(), test.units, test.milli)
			}
		})
	}
	for _, text := range []string{``, `""`, `"."`, `"x"`, `"1x"`, `"1 K"`, `"1mi"`, `"1ki"`, `"1e"`, `"1e1000000000"`, `true`, `{}`, `"--1"`, `"0x10"`, `"` + strings.Repeat("9", 1000) + `"`} {
		if q, err := parseQuantity(json.RawMessage(text)); err == nil {
			t.Errorf("%s was read as %v", text, q.milli)
		}
	}
}

func TestTheConfigurationLimitsNamespaces(t *testing.T) {
	required := defaultConfig()
	required.RequiredNamespaces = []string{"pid"}
	shared := defaultConfig()
	shared.DefaultNamespaces = []string{"net"}
	both := shared
	both.RequiredNamespaces = []string{"ipc"}
	tests := []struct {
		name   string
		Config Config
		value  string
		want   Namespaces
		err    string
	}{
		{"no isolator", defaultConfig(), ``, Namespaces{}, ""},
		{"nothing asked", defaultConfig(), `{}`, Namespaces{}, ""},
		{"null", defaultConfig(), `null`, Namespaces{}, ""},
		{"pid", defaultConfig(), `{"pid": "host"}`, Namespaces{HostPID: true}, ""},
		{"all", defaultConfig(), `{"pid": "host", "ipc": "host", "uts": "host", "net": "host", "user": "host"}`, Namespaces{HostIPC: true, HostNet: true, HostPID: true, HostUTS: true}, ""},
		{"default value", defaultConfig(), `{"pid": ""}`, Namespaces{}, ""},
		{"few by default", shared, ``, Namespaces{HostIPC: true, HostPID: true, HostUTS: true}, ""},
		{"required overrides default", both, ``, Namespaces{HostPID: true, HostUTS: true}, ""},
		{"required", required, `{"pid": "host"}`, Namespaces{}, "pid must not be the host's: stagerConfig.requiredNamespaces forbids it"},
		{"unknown key", defaultConfig(), `{"mnt": "host"}`, Namespaces{}, `unknown namespace "mnt"`},
		{"unknown value", defaultConfig(), `{"net": "none"}`, Namespaces{}, `net must be "host", is "none"`},
		{"a list", defaultConfig(), `["net"]`, Namespaces{}, `must be an object`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var list []manifest.Isolator
			if test.value != "" {
				list = listed("os/linux/namespaces", test.value)
			}
			got, err := namespacesOf(test.Config, list)
			if test.err != "" {
				wantError(t, err, test.err)
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %+v, error %v, want %+v", got, err, test.want)
			}
		})
	}
}
