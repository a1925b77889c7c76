package tests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/harness"
)

// entrypoint is what images of programs that drop root's rights have, as Docker's own of redis: without rights it
// executes its arguments; as root it gives the volume to the user first.
const entrypoint = `#!/bin/sh
set -e
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
	find . \! -user redis -exec chown redis '{}' +
	exec su -s /bin/sh redis -c "exec $0 $*"
fi
exec "$@"
`

// redisLayout makes an OCI layout with an image of redis, as umoci makes them: a layer of files, and one that deletes
// one of them.
func redisLayout(t *testing.T) (layout string) {
	t.Helper()
	layout = filepath.Join(t.TempDir(), "layout")
	image := layout + ":7"
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	root := filepath.Join(first, "rootfs")
	harness.RunAll(t, []string{"umoci", "init", "--layout", layout}, []string{"umoci", "new", "--image", image},
		[]string{"umoci", "unpack", "--image", image, first},
		[]string{"cp", "-a", filepath.Join(suite.Store, suite.IDs["redis"], "rootfs") + "/.", root},
		[]string{"mkdir", "-p", root + "/bin", root + "/data", root + "/usr/local/bin"},
		[]string{"cp", "/bin/busybox", root + "/bin/busybox"},
		[]string{"chroot", root, "/bin/busybox", "--install", "-s", "/bin"})
	if err := errors.Join(os.WriteFile(root+"/secret", nil, 0o644), os.WriteFile(root+"/usr/local/bin/docker-entrypoint.sh", []byte(entrypoint), 0o755)); err != nil {
		t.Fatal(err)
	}
	harness.RunAll(t, []string{"umoci", "repack", "--image", image, first},
		[]string{"umoci", "unpack", "--image", image, second}, []string{"rm", second + "/rootfs/secret"}, []string{"umoci", "repack", "--image", image, second},
		[]string{
			"umoci", "config", "--image", image, "--config.entrypoint", "docker-entrypoint.sh", "--config.cmd", "redis-server", "--config.workingdir", "/data",
			"--config.volume", "/data", "--config.exposedports", "6379/tcp", "--config.env", "PATH=/usr/local/bin:/usr/bin:/bin",
		})
	return layout
}

// `launcher run docker://…/redis` does what a person expects of the image: its entry point becomes the user redis, which owns
// the volume; what a layer deletes is gone; words after -- replace the command; and the registry is
// asked once.
func TestRedisOfARegistryRuns(t *testing.T) {
	b := suite.NewMachine(t, harness.OwnStore())
	registry, stop := dockerregistry.Run(t)
	harness.RunAll(t, []string{"skopeo", "copy", "--quiet", "--dest-tls-verify=false", "oci:" + redisLayout(t) + ":7", "docker://" + registry + "/library/redis:7"})
	image := "docker://" + registry + "/library/redis:7"
	b.Must("image", "import", image)
	b.LayersAreNow()
	stop()

	b.Must("run", "--detach", "--name", "r", image)
	client := func(args ...string) string {
		return strings.TrimSpace(b.Launcher(append([]string{"exec", "r", "--", "redis-cli"}, args...)...).Stdout)
	}
	harness.Eventually(t, "redis answers", func() bool { return client("ping") == "PONG" })
	for _, tt := range []struct{ command, want string }{{"set k v", "OK"}, {"get k", "v"}, {"save", "OK"}} {
		if got := client(strings.Fields(tt.command)...); got != tt.want {
			t.Errorf("redis-cli %s: %q, want %q", tt.command, got, tt.want)
		}
	}
	if got := b.Must("exec", "r", "--", "stat", "-c", "%U", "/data/dump.rdb"); got != "redis\n" {
		t.Errorf("owner of the data: %q", got)
	}
	if r := b.Launcher("exec", "r", "--", "stat", "/secret"); r.Code == 0 {
		t.Errorf("a file that a layer deletes: %+v", r)
	}
	b.Must("stop", "r")
	if got := strings.TrimSpace(b.Must("wait", "r")); got != "0" {
		t.Errorf("exit code of redis %s", got)
	}
	if r := b.Launcher("run", "--rm", image, "--", "redis-server", "--version"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "Redis server v=") {
		t.Errorf("with a command: %+v", r)
	}
}
