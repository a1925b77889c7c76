# shellcheck shell=sh disable=SC2154 # $root is build.sh's
# A fourth name of the program: a network that is taken out of the configuration is deleted.
ln -s setup "$root/opt/network/remove"
