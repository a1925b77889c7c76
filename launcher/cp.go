package main

import (
	"context"
	"fmt"
	"strings"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// cpCommand is `cp`.
func cpCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "cp POD[:APP]:PATH HOSTPATH|-  |  cp HOSTPATH|- POD[:APP]:PATH",
		Short: "copy files between the host and a running app",
		Long: `cp copies a file or a folder from an app to the host or from the host to an app, by the rules of cp(1):
into a folder that exists, or under the name of PATH. PATH/. is the contents of a folder. With - as the source, cp
unpacks a tar archive from stdin into a folder; with - as the target, it writes a tar archive to stdout. An archive
without its end marker is unpacked and is an error, because more files may be missing.

PATH is inside the app's root, with its volumes; the app may change the files meanwhile. Links below PATH
are copied as links. Files keep their mode and the numbers of their owner, and regular files their time; a copy on
the host has no setuid and setgid bits. Devices, FIFOs, sockets and the kernel's own files, such as those of /proc, are
left out, each with a warning; in the place of a copy, they are an error.`,
		Example: `  launcher cp web:/etc/hosts .
  launcher cp site/. web:nginx:/srv/www
  launcher cp web:/var/lib/data - | zstd >data.tar.zst`,
		DisableFlagsInUseLine: true,
		Args:                  wants(2, 2, "POD[:APP]:PATH and a path of the host or -"),
		ValidArgsFunction:     c.completeCopies,
		RunE:                  func(cmd *cobra.Command, args []string) error { return c.cp(cmd.Context(), args[0], args[1]) },
	}
}

// parseCopyEnd reads POD[:APP]:PATH, or a path of the host, which begins with "/" or "." if it has a colon. pod is ""
// for the host.
func parseCopyEnd(text string) (pod string, e daemon.CopyEnd, err error) {
	pod, path, inPod := strings.Cut(text, ":")
	if !inPod || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		pod, path = "", text
	}
	e.Path = path
	if app, rest, ok := strings.Cut(path, ":"); pod != "" && ok && app != "" && !strings.Contains(app, "/") {
		e.App, e.Path = app, rest
	}
	if e.Path == "" || inPod && text[0] == ':' {
		err = usageError{fmt.Sprintf("cp: %s is not POD[:APP]:PATH or a path of the host", quoted(text))}
	}
	return pod, e, err
}

func (c *cli) cp(ctx context.Context, from, to string) error {
	fromPod, source, err := parseCopyEnd(from)
	if err != nil {
		return err
	}
	toPod, target, err := parseCopyEnd(to)
	if err != nil {
		return err
	}
	if err := c.checkCopy(from, to, fromPod, toPod); err != nil {
		return err
	}
	defer untilInterrupted(ctx)()
	if from == "-" || to == "-" {
		// The other end of a pipe may wait: a signal may end the process then.
		letSignalsEnd()
	}
	pod, err := c.daemon.FindPod(fromPod + toPod)
	if err != nil {
		return err
	}
	switch {
	case from == "-":
		source.In, target.Pod = c.stdin, pod
	case to == "-":
		source.Pod, target.Out = pod, c.stdout
		return c.copyAndWarn(ctx, source, target, func() {})
	case fromPod != "":
		source.Pod = pod
	default:
		target.Pod = pod
	}
	return c.copyAndWarn(ctx, source, target, c.busy("copy "+printable(from)))
}

// checkCopy returns a usage error unless one end is in a pod, and the other is not.
func (c *cli) checkCopy(from, to, fromPod, toPod string) error {
	switch {
	case fromPod == "" && toPod == "":
		return usageError{"cp: one argument must be POD:PATH or POD:APP:PATH"}
	case fromPod != "" && toPod != "":
		return usageError{"cp: both arguments are in pods; copy to the host first, or use launcher cp " + from +
			" - | launcher cp - " + to}
	case to == "-" && isTerminal(c.stdout):
		return usageError{"cp: stdout is a terminal; want a file or a pipe for the archive"}
	}
	return nil
}

// copyAndWarn copies, and calls copied before it prints what was left out.
func (c *cli) copyAndWarn(ctx context.Context, source, target daemon.CopyEnd, copied func()) error {
	return c.warnOfCopy(func(warn func(string)) error {
		defer copied()
		return c.daemon.Copy(ctx, source, target, warn)
	})
}

// warnOfCopy calls a function that copies, and prints what was left out.
func (c *cli) warnOfCopy(copying func(warn func(string)) error) error {
	var warnings []string
	err := copying(func(text string) { warnings = append(warnings[:min(len(warnings), maxCopyWarnings)], text) })
	c.warn(warnings...)
	return err
}

// maxCopyWarnings limits how many files an app can have cp report.
const maxCopyWarnings = 20

// completeCopies proposes pods, and paths of the host.
func (c *cli) completeCopies(cmd *cobra.Command, args []string,
	word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= 2 || strings.HasPrefix(word, "/") || strings.HasPrefix(word, ".") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	found, _ := c.completePods(1, false)(cmd, nil, word)
	for i := range found {
		found[i] = strings.SplitN(found[i], "\t", 2)[0] + ":"
	}
	return found, cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
}
