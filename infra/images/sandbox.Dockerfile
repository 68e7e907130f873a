# What a candidate sees as its root: no program that raises rights, no package manager, no sandboxing tool.
ARG BASE
FROM $BASE
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && rm -rf /usr/bin/apt* /usr/bin/dpkg* /usr/bin/bwrap /usr/lib/apt /var/lib/apt /var/lib/dpkg /var/cache
CMD ["python3"]
