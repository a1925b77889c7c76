package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"

	"kurma.io/stager/launcher/copies"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// cpCommand is `cp`.
func cpCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "cp POD[:APP]:PATH HOSTPATH|-  |  cp HOSTPATH|- POD[:APP]:PATH",
		Short: "copy files between the host and an app that runs",
		Long: `cp copies a file or a folder from an app to the host or from the host to an app, by the rules of cp(1): into a folder that
exists, or under the name of PATH. PATH/. is the contents of a folder. Of - the source is a tar archive from stdin, which is unpacked
into a folder, and the target a tar archive to stdout.

PATH is inside the app's root, with its volumes, and what it leads to may change while the app runs. Links below it are copied as
links. Files keep their mode, time and the numbers of their owner; a copy on the host has no setuid and setgid bits. Devices, FIFOs, sockets and
the kernel's own files, such as those of /proc, are left out, each with a warning.`,
		Example: `  launcher cp web:/etc/hosts .
  launcher cp site/. web:nginx:/srv/www
  launcher cp web:/var/lib/data - | zstd >data.tar.zst`,
		DisableFlagsInUseLine: true,
		Args:                  wants(2, 2, "POD[:APP]:PATH and a path of the host or -"),
		ValidArgsFunction:     c.completeCopies,
		RunE:                  func(cmd *cobra.Command, args []string) error { return c.cp(cmd.Context(), args[0], args[1]) },
	}
}

// copyEnd is one of the two ends of a copy: a path in an app, a path on the host, or a tar archive.
type copyEnd struct {
	pod, app, path string // pod is "" for the host
}

func (e copyEnd) isArchive() bool { return e.pod == "" && e.path == "-" }

// parseCopyEnd reads POD[:APP]:PATH, or a path of the host, which begins with "/" or "." if it has a colon.
func parseCopyEnd(text string) (copyEnd, error) {
	pod, path, inPod := strings.Cut(text, ":")
	if !inPod || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		pod, path = "", text
	}
	e := copyEnd{pod: pod, path: path}
	if app, rest, ok := strings.Cut(path, ":"); pod != "" && ok && app != "" && !strings.Contains(app, "/") {
		e.app, e.path = app, rest
	}
	if e.path == "" || inPod && text[0] == ':' {
		return e, usageError{fmt.Sprintf("cp: %s is not POD[:APP]:PATH or a path of the host", quoted(text))}
	}
	return e, nil
}

func (c *cli) cp(ctx context.Context, from, to string) error {
	source, err := parseCopyEnd(from)
	if err != nil {
		return err
	}
	target, err := parseCopyEnd(to)
	if err != nil {
		return err
	}
	switch {
	case source.pod == "" && target.pod == "":
		return usageError{"cp: one of the two must be POD:PATH or POD:APP:PATH"}
	case source.pod != "" && target.pod != "":
		return usageError{"cp: both are in pods; copy to the host first, or use launcher cp " + from + " - | launcher cp - " + to}
	case target.isArchive() && isTerminal(c.stdout):
		return usageError{"cp: stdout is a terminal; want a file or a pipe for the archive"}
	}
	if source.isArchive() || target.isArchive() {
		// The other end of a pipe may wait: a signal may end the process then.
		signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	}
	inApp := source
	if target.pod != "" {
		inApp = target
	}
	app, closeApp, err := c.appTree(ctx, inApp)
	if err != nil {
		return err
	}
	defer closeApp()
	done := func() {}
	if !target.isArchive() {
		done = c.busy("copy " + printable(from))
	}
	defer done()
	var warnings []string
	warn := func(text string) { warnings = append(warnings[:min(len(warnings), maxCopyWarnings)], text) }
	if target.pod != "" {
		err = c.copyBetween(ctx, copies.Host(), source, app, target, warn)
	} else {
		err = c.copyBetween(ctx, app, source, copies.Host(), target, warn)
	}
	done()
	c.warn(warnings...)
	return err
}

// maxCopyWarnings limits how many files an app can have cp report.
const maxCopyWarnings = 20

// appTree opens the files of a running app.
func (c *cli) appTree(ctx context.Context, e copyEnd) (tree copies.Tree, done func(), err error) {
	pod, _, err := c.findPod("cp", []string{e.pod})
	if err != nil {
		return tree, nil, err
	}
	return c.daemon.AppFiles(ctx, pod, e.app)
}

// copyBetween copies from a tree or stdin to a tree or stdout.
func (c *cli) copyBetween(ctx context.Context, fromTree copies.Tree, from copyEnd, toTree copies.Tree, to copyEnd, warn func(string)) error {
	intoPod := to.pod != ""
	if from.isArchive() {
		target, err := toTree.Target(to.path, nil)
		if err != nil {
			return err
		}
		defer func() { _ = target.Close() }()
		return target.Unpack(c.stdin, intoPod, warn)
	}
	source, err := fromTree.Source(from.path)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if to.isArchive() {
		return source.Pack(ctx, c.stdout, "", warn)
	}
	target, err := toTree.Target(to.path, source)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	return copies.Copy(ctx, source, target, intoPod, warn)
}

// completeCopies proposes pods, and paths of the host.
func (c *cli) completeCopies(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= 2 || strings.HasPrefix(word, "/") || strings.HasPrefix(word, ".") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	found, _ := c.completePods(1, false)(cmd, nil, word)
	for i := range found {
		found[i] = strings.SplitN(found[i], "\t", 2)[0] + ":"
	}
	return found, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
}
