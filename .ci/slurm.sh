#!/usr/bin/env bash
# A SLURM of one node on this machine, for the tests: `.ci/slurm.sh start`, `.ci/slurm.sh stop`.
# Installs Debian's packages where they are missing (rsync too, for the collector); needs root. Its configuration, state and process
# ids lie in one folder (SLURM_HOME), which the tests find through SLURM_CONF:
#     export SLURM_CONF=$(.ci/slurm.sh start)/slurm.conf
set -euo pipefail
HOME_DIR=${SLURM_HOME:-/tmp/interreplay-slurm}

install() {
    command -v slurmctld slurmd sbatch munged rsync >/dev/null && return
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        slurm-wlm munge rsync >&2
}

configure() {
    mkdir -p "$HOME_DIR"/{state,spool,log,pid}
    # The real core count: every test asks for one core, so that two tasks run side by side.
    cat >"$HOME_DIR/slurm.conf" <<CONF
ClusterName=interreplay
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
# How long a job that was requeued waits before it may start again; 120 s otherwise.
AuthInfo=cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=20
MinJobAge=300
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
StateSaveLocation=$HOME_DIR/state
SlurmdSpoolDir=$HOME_DIR/spool
SlurmctldPidFile=$HOME_DIR/pid/slurmctld
SlurmdPidFile=$HOME_DIR/pid/slurmd
SlurmctldLogFile=$HOME_DIR/log/slurmctld
SlurmdLogFile=$HOME_DIR/log/slurmd
NodeName=localhost CPUs=$(nproc) State=UNKNOWN
PartitionName=usual Nodes=localhost Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=localhost MaxTime=INFINITE State=UP PriorityTier=9
CONF
}

start() {
    install
    configure
    export SLURM_CONF="$HOME_DIR/slurm.conf"
    if scontrol ping 2>/dev/null | grep -q "is UP"; then
        echo "$HOME_DIR"
        return
    fi
    # A munged that runs already serves as well.
    if ! munge -n </dev/null >/dev/null 2>&1; then
        [ -s /etc/munge/munge.key ] || { mungekey --create; chown munge: /etc/munge/munge.key; }
        mkdir -p /run/munge
        chown munge: /run/munge
        setpriv --reuid=munge --regid=munge --clear-groups munged >&2
        cp /run/munge/munged.pid "$HOME_DIR/pid/munged"
    fi
    slurmctld >&2
    slurmd -N localhost >&2
    for _ in $(seq 60); do
        sinfo -h -o %T 2>/dev/null | grep -q idle && { echo "$HOME_DIR"; return; }
        sleep 1
    done
    echo "SLURM did not start; its logs are in $HOME_DIR/log" >&2
    tail -n 5 "$HOME_DIR"/log/* >&2
    exit 1
}

stop() {
    # By their ids: nobody else's daemons.
    for daemon in slurmd slurmctld munged; do
        [ -s "$HOME_DIR/pid/$daemon" ] || continue
        kill "$(cat "$HOME_DIR/pid/$daemon")" 2>/dev/null || true
        rm -f "$HOME_DIR/pid/$daemon"
    done
}

case "${1:-}" in
    start) start ;;
    stop) stop ;;
    *) echo "usage: .ci/slurm.sh start|stop" >&2; exit 2 ;;
esac
