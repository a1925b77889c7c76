package tests

import (
	"errors"
	"os"
	"os/exec"
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

// savingScript is a program of user 1000 that saves data in its image's volume, is restarted once, and ends of SIGQUIT alone.
const savingScript = `#!/bin/sh
if [ -e /data/seed ]; then
	stat -c '%u %g %a' /data && cat /data/seed && echo saved >/data/mine && rm /data/seed
	exit 1
fi
cat /data/mine
trap 'echo asked; exit 0' QUIT
trap '' TERM
echo up
while :; do sleep 1000 & wait $!; done`

// savingImage pushes an image with USER, STOPSIGNAL and a VOLUME in another, as buildah makes them, and returns its source.
func savingImage(t *testing.T, registry string) string {
	t.Helper()
	storage := t.TempDir()
	buildah := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("buildah", append([]string{"--root", storage + "/root", "--runroot", storage + "/run", "--storage-driver", "vfs"}, args...)...).Output()
		if err != nil {
			t.Fatalf("buildah %q: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	container := buildah("from", "scratch")
	root := buildah("mount", container)
	harness.RunAll(t, []string{"mkdir", "-p", root + "/bin", root + "/data"}, []string{"cp", "/bin/busybox", root + "/bin/busybox"},
		[]string{"chroot", root, "/bin/busybox", "--install", "-s", "/bin"})
	if err := errors.Join(os.WriteFile(root+"/entry", []byte(savingScript), 0o755), os.WriteFile(root+"/data/seed", []byte("from the image\n"), 0o644),
		os.Chown(root+"/data", 1000, 1000), os.Chmod(root+"/data", 0o750)); err != nil {
		t.Fatal(err)
	}
	buildah("umount", container)
	buildah("config", "--entrypoint", `["/entry"]`, "--env", "PATH=/bin", "--user", "1000:1000",
		"--volume", "/data", "--volume", "/data/logs", "--stop-signal", "SIGQUIT", container)
	buildah("commit", "--quiet", "--rm", container, "oci:"+storage+"/layout:1")
	harness.RunAll(t, []string{"skopeo", "copy", "--quiet", "--dest-tls-verify=false", "oci:" + storage + "/layout:1", "docker://" + registry + "/saving:1"})
	return "docker://" + registry + "/saving:1"
}

// An app that runs as another user than 0 writes into the volume of its image, finds there what the image has, and is stopped by the
// image's stop signal. When the app is restarted, its volume stays as it is; a new pod has a new one.
func TestAnImagesVolumeBelongsToItsUser(t *testing.T) {
	b := suite.NewMachine(t, harness.OwnStore(), harness.StagerConfig(`{"gracePeriod": "20s", "restart": "on-failure"}`))
	registry, _ := dockerregistry.Run(t)
	image := savingImage(t, registry)
	b.Must("image", "import", image)
	b.LayersAreNow()
	for _, name := range []string{"first", "second"} {
		b.Must("run", "--detach", "--name", name, image)
		harness.Eventually(t, "the app is up again", func() bool { return strings.HasSuffix(b.Must("logs", name), "up\n") })
		b.Must("stop", name)
		if got, want := b.Must("logs", name), "1000 1000 750\nfrom the image\nsaved\nup\nasked\n"; got != want {
			t.Errorf("the app of pod %s writes\n%s, want\n%s", name, got, want)
		}
	}
}

// An exported image has the files of its layers, and runs in a store that has nothing else, as it does in its own.
func TestAnExportedImageRunsInAnotherStore(t *testing.T) {
	b, other := suite.NewMachine(t, harness.OwnStore()), suite.NewMachine(t, harness.OwnStore())
	registry, stop := dockerregistry.Run(t)
	image := savingImage(t, registry)
	b.Must("image", "import", image)
	b.LayersAreNow()
	stop()
	file := filepath.Join(t.TempDir(), "saving.aci")
	if r := b.Launcher("image", "export", image, file); r.Code != 0 || !strings.Contains(r.Stderr, file+" includes the files of the image's dependencies (1)") {
		t.Errorf("%+v", r)
	}
	id := strings.TrimSpace(other.Must("image", "import", file))
	other.LayersAreNow()
	const once = "stat -c '%u %g %a' /data && cat /data/seed && echo saved >/data/mine && cat /data/mine"
	for _, m := range []struct {
		machine *harness.Machine
		image   string
	}{{b, image}, {other, id}} {
		r := m.machine.Launcher("run", "--rm", "--exec", "/bin/sh", m.image, "--", "-c", once)
		if want := "1000 1000 750\nfrom the image\nsaved\n"; r.Code != 0 || r.Stdout != want || r.Stderr != "" {
			t.Errorf("%s: %+v, want\n%s and no warning", m.image, r, want)
		}
	}
}
