package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/harness"
)

// realImage is an image of testdata/NAME: Debian's program with a user other than root, a volume, a stop signal, an entry point
// that is a shell script, and a health check, as the official image of the program has them.
type realImage struct {
	name, volume string
	user         int    // the image's
	write, read  string // scripts of the image's user, by which the program saves the word "saved" and prints it
}

func realImages() []realImage {
	return []realImage{
		{"nginx", "usr-share-nginx-html", 33, "echo saved >/usr/share/nginx/html/index.html", "wget -q -O - http://127.0.0.1:8080/index.html"},
		{"redis", "data", 100, "redis-cli set word saved && redis-cli save", "redis-cli get word"},
		{"postgres", "var-lib-postgresql-data", 101, `psql -q -c "insert into goods values ('saved')"`, "psql -t -A -c 'select name from goods'"},
	}
}

// push builds the image with buildah, in a chroot, and pushes it to a registry, there with the words inside. It returns the
// image's source.
func (r realImage) push(t *testing.T, registry string, inside ...string) string {
	t.Helper()
	dir := t.TempDir()
	folder, root := filepath.Join(dir, r.name), filepath.Join(dir, "rootfs")
	harness.RunAll(t, []string{"cp", "-r", "testdata/" + r.name, folder},
		[]string{"tar", "-C", dir, "-xzf", filepath.Join(suite.Images, r.name+".aci"), "rootfs"},
		[]string{"mkdir", "-p", root + "/bin"}, []string{"cp", "/bin/busybox", root + "/bin/busybox"},
		[]string{"tar", "-C", root, "-cf", folder + "/files.tar", "."})
	source := "docker://" + registry + "/library/" + r.name + ":1"
	buildah := []string{"buildah", "--root", dir + "/storage", "--runroot", dir + "/run", "--storage-driver", "vfs"}
	harness.RunAll(t, append(buildah, "build", "--isolation", "chroot", "--format", "docker", "--layers", "--quiet", "--tag", r.name, folder),
		append(slices.Concat(inside, buildah), "push", "--quiet", "--tls-verify=false", r.name, source))
	return source
}

// Images of real programs that never are root save their data in their volumes, of the image or a folder of the operator's. They
// keep it when the app is restarted and when the pod is; and their stop signals end them before they are killed.
func TestRealImagesOfARegistryKeepTheirData(t *testing.T) {
	for _, image := range realImages() {
		t.Run(image.name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.OwnStore(), harness.StagerConfig(`{"gracePeriod": "50s"}`))
			registry, stop := dockerregistry.Run(t)
			source := image.push(t, registry)
			b.Must("image", "import", source)
			b.LayersAreNow()
			stop()

			b.Must("run", "--detach", "--name", "own", "--restart", "on-failure", "--health-interval", "1s", source)
			image.writes(b, "own")
			harness.Eventually(t, "the image's health check succeeds", func() bool {
				return strings.Contains(b.Must("status", "--json", "own"), `"health":"healthy"`)
			})
			before := b.Must("status", "--json", "own")
			b.Must("kill", "own")
			harness.Eventually(t, "the app is another process", func() bool {
				now := b.Launcher("status", "--json", "own").Stdout
				return strings.Contains(now, `"exited":false`) && !strings.Contains(now, "ending") && now != before
			})
			image.reads(b, "own")
			var stops []time.Duration
			stops = append(stops, stopsByItself(b, "own"))
			b.Must("restart", "own")
			image.reads(b, "own")
			stops = append(stops, stopsByItself(b, "own"))

			folder := b.Folder("folder", 0o700)
			if err := os.Chown(folder, image.user, 7); err != nil {
				t.Fatal(err)
			}
			b.Must("run", "--detach", "--name", "folder", "--volume", image.volume+"="+folder, source)
			image.writes(b, "folder")
			stops = append(stops, stopsByItself(b, "folder"))
			b.Must("restart", "folder")
			image.reads(b, "folder")
			stops = append(stops, stopsByItself(b, "folder"))
			var stat unix.Stat_t
			if err := unix.Stat(folder, &stat); err != nil || stat.Mode != unix.S_IFDIR|0o700 || int(stat.Uid) != image.user || int(stat.Gid) != 7 {
				t.Errorf("%v; the operator's folder has mode %o and owner %d:%d", err, stat.Mode, stat.Uid, stat.Gid)
			}
			for range 5 { // on a machine that is busy with other tests
				if slices.Min(stops) < time.Second {
					return
				}
				b.Must("restart", "own")
				image.reads(b, "own")
				stops = append(stops, stopsByItself(b, "own"))
			}
			t.Errorf("the pods stopped within %v, none in less than a second", stops)
		})
	}
}

// writes has the program save its data, and waits until it has.
func (r realImage) writes(b *harness.Machine, pod string) {
	b.T.Helper()
	r.eventually(b, pod, "takes data", func() bool { return b.Launcher("exec", pod, "--", "sh", "-c", r.write).Code == 0 })
	r.reads(b, pod)
}

func (r realImage) reads(b *harness.Machine, pod string) {
	b.T.Helper()
	r.eventually(b, pod, "has its data", func() bool {
		return b.Launcher("exec", pod, "--", "sh", "-c", r.read).Stdout == "saved\n"
	})
}

func (r realImage) eventually(b *harness.Machine, pod, what string, condition func() bool) {
	b.T.Helper()
	begin := time.Now()
	harness.Eventually(b.T, r.name+" "+what, condition)
	b.T.Logf("%s in pod %s %s after %v", r.name, pod, what, time.Since(begin).Round(time.Millisecond))
}

// stopsByItself stops a pod whose app must end by its stop signal, and returns the time of the stop. An app that is killed when
// its grace period is over has another exit code.
func stopsByItself(b *harness.Machine, pod string) time.Duration {
	b.T.Helper()
	begin := time.Now()
	b.Must("stop", pod)
	took := time.Since(begin)
	b.T.Logf("pod %s stops within %v", pod, took.Round(time.Millisecond))
	if r := b.Launcher("status", "--json", pod); !strings.Contains(r.Stdout, `"exitCode":0`) || strings.Contains(r.Stdout, "exitReason") {
		b.T.Errorf("pod %s has not ended by its stop signal: %+v\n%s", pod, r, b.Must("logs", pod))
	}
	return took
}
